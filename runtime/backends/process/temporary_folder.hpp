// A folder that is removed with its contents when its holder goes out of scope.
#pragma once
#include <filesystem>

namespace ejk {

class TemporaryFolder {
 public:
  // Makes `path` with mode 0700. Throws std::runtime_error with the path and the system's words.
  explicit TemporaryFolder(std::filesystem::path path);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }  // it was renamed to its final place

 private:
  std::filesystem::path path_;
  bool kept_ = false;
};

// Where compilers may work: $TMPDIR if it is a folder that can be written and nobody else can rename what is in it, else /tmp, else
// /var/tmp; throws std::runtime_error where none is fit. Folders left there by killed processes are removed on the first call of a process.
std::filesystem::path work_folder_name();
// Removes this user's entries of `folder` that carry `prefix` and whose process is gone.
void remove_abandoned(const std::filesystem::path& folder, const char* prefix);

}  // namespace ejk
