// A file held under an exclusive lock while it is changed; whoever replaces it by rename does so under the lock of the old one.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

#include "store/held_folder.hpp"

namespace ejk {

// Made if it is missing, with its folders. Throws CodedError(io) naming the file. Waits for other holders, which hold it for moments; one
// that does not let go is an error. A file that holds no records is left as it is: to change it throws CodedError(bad_input).
class LockedFile {
 public:
  static constexpr std::chrono::milliseconds patience{30'000};
  explicit LockedFile(const std::string& path, std::chrono::milliseconds at_most = patience);
  LockedFile(store::HeldFolder folder, const std::string& name,
             std::chrono::milliseconds at_most = patience);  // of a folder that was judged
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile();

  // One line, after the file's last whole line: an unfinished one, of a writer that was killed, is cut off, unless it is a record that
  // lacks only its line end. On the disk when it returns.
  void append_line(std::string_view line) const;
  std::string text() const;  // all of it
  void remove() const;
  // The whole content in one step; the lock goes with the old file.
  void replace(std::string_view bytes) const;

 private:
  [[noreturn]] void fail(const char* what) const;
  void open_and_lock();
  std::string text_of_records() const;
  void mend_end() const;
  void write_all(int fd, std::string_view bytes, const char* what) const;
  const store::HeldFolder folder_;
  const std::string name_, path_;
  const std::chrono::milliseconds at_most_;
  int fd_ = -1;
};

}  // namespace ejk
