// Files of a store: bounded reads, synced writes.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ejk::store {

inline constexpr char temporary_prefix[] = ".tmp-";                // of folders that are being written or removed; an owned_name() each
inline constexpr std::size_t info_limit = 1 << 20;                 // image.json, *.failed
inline constexpr std::size_t binary_limit = std::size_t{1} << 30;  // one image's binary
inline constexpr std::size_t lines_limit = std::size_t{1} << 30;   // records, recorded calls: a JSON object a line

// The whole of a regular file. nullopt, with the reason: missing, not a regular file, longer than limit, unreadable.
std::optional<std::string> read_file(const std::filesystem::path& path, std::size_t limit, std::string& why_not);
// The same of a file that is open; `path` is for the words.
std::optional<std::string> read_open_file(int descriptor, const std::filesystem::path& path, std::size_t limit, std::string& why_not);
// A new file, on the disk when it returns. Throws std::runtime_error with the path and the system's words.
void write_synced(const std::filesystem::path& path, std::string_view bytes);
void sync_folder(const std::filesystem::path& path);  // best effort: some file systems cannot
// Also makes missing parents. Never writable by others, whatever the umask: their binaries must not come in. Throws std::runtime_error.
void make_folders(const std::filesystem::path& path, unsigned mode = 0755);

// Throws std::runtime_error: "cannot `what` `path`", and the system's words for errno.
[[noreturn]] void fail_by_errno(const char* what, const std::filesystem::path& path);

}  // namespace ejk::store
