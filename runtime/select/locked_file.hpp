// A file held under an exclusive lock while it is changed; whoever replaces it by rename does so under the lock of the old one.
#pragma once
#include <string>
#include <string_view>

namespace ejk {

// Made if it is missing, with its folders. Throws CodedError(io) naming the file. Waits for other holders, which hold it for moments.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path);
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile();

  // One line, after the file's last whole line: an unfinished one, of a writer that was killed, is cut off, unless it is a record that
  // lacks only its line end. On the disk when it returns.
  void append_line(std::string_view line) const;
  // The whole content in one step; the lock goes with the old file.
  void replace(std::string_view bytes) const;

 private:
  [[noreturn]] void fail(const char* what) const;
  void mend_end() const;
  void write_all(int fd, std::string_view bytes, const char* what) const;
  std::string path_;
  int fd_ = -1;
};

}  // namespace ejk
