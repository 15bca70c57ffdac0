// Tuning records as files: reading, appending, importing, merging. A file has one record a line; <folder>/<device>/<kernel>.jsonl.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ejk/tuning.hpp"

namespace ejk {

struct RecordsRow {
  TuningRecord record;
  std::string file;
  std::size_t line = 0;
};

struct RecordsContent {
  std::vector<RecordsRow> rows;      // by line
  std::vector<std::string> skipped;  // "FILE:3: not a JSON object"
};
// Every row of a file, also those that a later one takes the place of. An error: there is no such file, or it cannot be read.
EJK_API Result<RecordsContent> read_records(const std::string& file);

// "<folder>/<device>/<kernel>.jsonl" for the key of a record; an error if the key has no device and kernel that can name a file.
EJK_API Result<std::string> records_file(const std::string& folder, const std::string& key);

// Appends to the file of the record's key; safe for any number of processes, and against being killed at any moment: what a killed writer
// left of a line is removed by the next append. Rows that a later row takes the place of are removed when they are as many as the others.
// Refuses a record that was not measured.
EJK_API Status append_record(const std::string& folder, const TuningRecord& record);

// Whether a is the better measurement of the same key (which names the device): one whose result was checked before one that was not,
// then the smaller standard error of the median (noise over the root of the number of samples), then the more samples.
EJK_API bool better_measured(const TuningRecord& a, const TuningRecord& b);

// One row for each key and source, in the order of first appearance: the better measured one, the later where neither is. Rows of one key
// with different sources are all kept: only a call can tell which source is today's.
EJK_API std::vector<TuningRecord> merge_records(std::vector<TuningRecord> records);

struct ImportReport {
  std::size_t added = 0, replaced = 0, kept = 0;  // kept: the folder's own row is the better measured one, or the same
};
// Merges records into a folder's files.
EJK_API Result<ImportReport> import_records(const std::string& folder, const std::vector<TuningRecord>& records);

// Removes the rows that `unwanted` names from a file, in one step; lines that are no records go too. Returns how many rows went.
EJK_API Result<std::size_t> remove_records(const std::string& file, const std::function<bool(const TuningRecord&)>& unwanted);

// Rewrites a file in one step with the rows that `change` has changed, which it says by true; lines that are no records go then. Returns
// how many it has changed; none: the file stays as it is.
EJK_API Result<std::size_t> update_records(const std::string& file, const std::function<bool(TuningRecord&)>& change);

// Writes a whole file in one step. No records: the file is removed.
EJK_API Status write_records(const std::string& file, const std::vector<TuningRecord>& records);

}  // namespace ejk
