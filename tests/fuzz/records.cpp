// libFuzzer: of any records file, each row is found by its key, and a record that is read is written and read again as the same.
#include <cstdint>
#include <cstdlib>

#include "ejk/tuning.hpp"
#include "fuzz/scratch.hpp"
#include "select/records_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  const auto path = (scratch.path() / "records.jsonl").string();
  fuzz::write(path, data, size);
  const ejk::RecordsFile file(path);
  for (const auto& row : file.rows()) {
    const auto rows = file.rows_of(row.key);
    if (std::find(rows.begin(), rows.end(), &row) == rows.end()) std::abort();
    const auto record = ejk::record_from_json(row.line);
    if (!record) continue;
    const auto line = ejk::to_json(*record);
    const auto again = ejk::record_from_json(line);
    if (!again || ejk::to_json(*again) != line) std::abort();
  }
  return 0;
}
