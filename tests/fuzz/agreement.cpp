// libFuzzer: an agreement's files after killed writers or by other hands: a record is appended behind whole lines, none of which is lost.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "ejk/kernel.hpp"
#include "ejk/tuning.hpp"
#include "fuzz/scratch.hpp"
#include "select/agreement.hpp"
#include "select/locked_file.hpp"
#include "select/records_file.hpp"

namespace {

using namespace ejk;

TuningRecord own_record() {
  TuningRecord record;
  record.key = R"({"attributes":{},"device":"cpu-generic-1t","kernel":"toy","tensors":{}})";
  record.config.variant = "plain";
  record.source = "0123456789abcdef";
  record.samples_us = {1.0};
  record.median_us = 1.0;
  return record;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  const std::string before(reinterpret_cast<const char*>(data), size);
  const auto device = scratch.path() / "cpu-generic-1t";
  std::filesystem::create_directories(device);
  const auto path = (device / "toy.jsonl").string();
  fuzz::write(path, data, size);
  const auto line = to_json(own_record());
  try {
    LockedFile(path).append_line(line);
  } catch (const std::exception&) {
    return 0;  // it may refuse a file that is none of records
  }
  std::string after(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(after.data(), static_cast<std::streamsize>(after.size()));
  const auto whole = before.substr(0, before.rfind('\n') + 1);
  if (!after.starts_with(whole) || !after.ends_with(line + "\n")) std::abort();
  if (RecordsFile(path).rows_of(own_record().key).empty()) std::abort();

  // The note of a failure is what somebody else wrote.
  Invocation invocation;
  invocation.kernel = "toy";
  invocation.device = "cpu-generic-1t";
  Agreement agreement(scratch.path().string(), invocation, before.substr(0, 64));
  if (!agreement.wait(std::chrono::seconds(0)).empty()) std::abort();  // nobody else is here
  agreement.note_failure(before);
  if (const auto told = agreement.failure(); !told || *told != before) std::abort();
  std::filesystem::remove_all(device);
  return 0;
}
