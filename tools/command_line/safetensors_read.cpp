// Reading safetensors files: the header, the extents of its tensors, their bytes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "command_line/safetensors.hpp"
#include "command_line/safetensors_types.hpp"

namespace ejk::tools {
namespace {

using nlohmann::json;
using reference::HostTensor;
constexpr std::uint64_t longest_header = 100'000'000;  // the format's own limit

struct Entry {
  std::string name;
  DType type = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the header's end
};

// A regular file, read at places. A pipe or a device has no end to judge the header by, and would hang its reader.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor_ < 0) fail(path, fmt::format("cannot open: {}", std::strerror(errno)));
    struct stat facts {};
    const bool regular = ::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode);
    if (!regular) ::close(descriptor_);
    if (!regular) fail(path, "is not a regular file");
    size_ = static_cast<std::uint64_t>(facts.st_size);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  void read(void* data, std::uint64_t bytes, std::uint64_t at, const std::string& what) const {
    for (char* next = static_cast<char*>(data); bytes > 0;) {
      const ssize_t count = ::pread(descriptor_, next, bytes, static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail(path_, fmt::format("cannot read {}: {}", what, count < 0 ? std::strerror(errno) : "the file became shorter"));
      next += count;
      at += static_cast<std::uint64_t>(count);
      bytes -= static_cast<std::uint64_t>(count);
    }
  }

 private:
  const std::filesystem::path& path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Builds the header's tree and refuses duplicate keys, which the JSON library would silently merge. Not by the library's callbacks: at the
// end of each object they look through all of its parent's members, which makes a header of many tensors quadratic.
class HeaderBuilder {
 public:
  explicit HeaderBuilder(const std::filesystem::path& path) : path_(path) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    const auto [member, fresh] = levels_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    if (!fresh) fail(path_, fmt::format("the name '{}' occurs twice in the header", name));
    member_ = &member->second;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    fail(path_, fmt::format("the header is not JSON: {}", error.what()));
  }
  json take() { return std::move(root_); }

 private:
  json* place(json value) {
    if (levels_.empty()) return &(root_ = std::move(value));
    if (levels_.back()->is_array()) return &levels_.back()->emplace_back(std::move(value));
    return &(*member_ = std::move(value));
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (levels_.size() == 8) fail(path_, "the header is nested more than 8 levels deep; its tensors' fields are at 3");
    levels_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  const std::filesystem::path& path_;
  json root_;
  std::vector<json*> levels_;  // the open objects and lists; what is in them does not move while they are open
  json* member_ = nullptr;     // of the innermost object
};

json parse_header(const std::filesystem::path& path, const std::string& text) {
  HeaderBuilder builder(path);
  json::sax_parse(text, &builder);
  json header = builder.take();
  if (!header.is_object()) fail(path, "the header is not a JSON object");
  return header;
}

DType type_named(const std::filesystem::path& path, const std::string& tensor, const std::string& name) {
  std::string known;
  for (const SafetensorsType& type : safetensors_types) {
    if (name == type.name) return type.type;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  fail(path, fmt::format("tensor '{}' has dtype '{}', expected one of {}", tensor, name, known));
}

std::uint64_t unsigned_number(const std::filesystem::path& path, const std::string& tensor, const char* field, const json& value) {
  if (!value.is_number_unsigned())
    fail(path, fmt::format("tensor '{}': {} holds {}, expected integers from 0 up", tensor, field, value.dump()));
  return value.get<std::uint64_t>();
}

void check_fields(const std::filesystem::path& path, const std::string& name, const json& fields) {
  if (!fields.is_object()) fail(path, fmt::format("tensor '{}' is described by {}, expected an object", name, fields.type_name()));
  for (const char* field : {"dtype", "shape", "data_offsets"})
    if (!fields.contains(field)) fail(path, fmt::format("tensor '{}' has no {}", name, field));
  for (const auto& [field, value] : fields.items())
    if (field != "dtype" && field != "shape" && field != "data_offsets")
      fail(path, fmt::format("tensor '{}' has an unknown field '{}'", name, field));
  if (!fields["dtype"].is_string()) fail(path, fmt::format("tensor '{}': dtype is not a string", name));
  if (!fields["shape"].is_array()) fail(path, fmt::format("tensor '{}': shape is not a list", name));
  if (!fields["data_offsets"].is_array() || fields["data_offsets"].size() != 2)
    fail(path, fmt::format("tensor '{}': data_offsets is not a list of two numbers", name));
}

Entry read_entry(const std::filesystem::path& path, const std::string& name, const json& fields) {
  check_fields(path, name, fields);
  Entry entry;
  entry.name = name;
  entry.type = type_named(path, name, fields["dtype"].get<std::string>());
  if (fields["shape"].size() > static_cast<std::size_t>(max_rank))
    fail(path, fmt::format("tensor '{}' has {} dimensions, at most {} are supported", name, fields["shape"].size(), max_rank));
  auto bytes = static_cast<std::uint64_t>(size_of(entry.type));
  for (const json& extent : fields["shape"]) {
    const std::uint64_t size = unsigned_number(path, name, "shape", extent);
    if (__builtin_mul_overflow(bytes, size, &bytes) || size >> 62 || bytes >> 62)
      fail(path, fmt::format("tensor '{}' of shape {} is too large", name, fields["shape"].dump()));
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  entry.begin = unsigned_number(path, name, "data_offsets", fields["data_offsets"][0]);
  entry.end = unsigned_number(path, name, "data_offsets", fields["data_offsets"][1]);
  if (entry.end < entry.begin || entry.end - entry.begin != bytes)
    fail(path, fmt::format("tensor '{}': data_offsets {} do not hold the {} bytes of {} {}", name, fields["data_offsets"].dump(), bytes,
                           fields["dtype"].get<std::string>(), fields["shape"].dump()));
  return entry;
}

// The tensors must fill the file, one after the other.
void check_extents(const std::filesystem::path& path, std::vector<Entry> entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t end = 0;
  std::string before = "the header";
  for (const Entry& entry : entries) {
    if (entry.end > data_bytes)
      fail(path, fmt::format("tensor '{}' ends at byte {} of the data, but the file holds {}; is it cut short?", entry.name, entry.end,
                             data_bytes));
    if (entry.begin < end) fail(path, fmt::format("tensor '{}' starts at byte {}, within {}", entry.name, entry.begin, before));
    if (entry.begin > end)
      fail(path, fmt::format("bytes {} to {} of the data, before tensor '{}', belong to no tensor", end, entry.begin, entry.name));
    end = entry.end;
    before = fmt::format("tensor '{}'", entry.name);
  }
  if (end != data_bytes) fail(path, fmt::format("the file holds {} bytes of data, the header describes {}", data_bytes, end));
}

HostTensor load(const std::filesystem::path& path, const InputFile& file, const Entry& entry, std::uint64_t data_begin) {
  HostTensor tensor(entry.name, entry.type, entry.shape);
  const std::uint64_t bytes = entry.end - entry.begin;
  file.read(tensor.data(), bytes, data_begin + entry.begin, fmt::format("tensor '{}'", entry.name));
  if (entry.type != DType::boolean) return tensor;
  const auto* values = static_cast<const unsigned char*>(tensor.data());
  for (std::uint64_t i = 0; i < bytes; ++i)
    if (values[i] > 1) fail(path, fmt::format("tensor '{}': byte {} is {}, a BOOL is 0 or 1", entry.name, i, values[i]));
  return tensor;
}

}  // namespace

std::vector<HostTensor> read_safetensors(const std::filesystem::path& path) {
  const InputFile file(path);
  const std::uint64_t size = file.size();
  std::uint64_t header_bytes = 0;
  if (size < sizeof header_bytes)
    fail(path, fmt::format("holds {} bytes, a safetensors file starts with 8 that give the header's length", size));
  file.read(&header_bytes, sizeof header_bytes, 0, "the header's length");
  if (header_bytes > longest_header)
    fail(path, fmt::format("the header's length is given as {}, at most {} are legal; is this a safetensors file?", header_bytes,
                           longest_header));
  if (header_bytes > size - 8)
    fail(path, fmt::format("the header's length is given as {}, but the file holds {} more bytes", header_bytes, size - 8));
  std::string text(header_bytes, '\0');
  file.read(text.data(), header_bytes, sizeof header_bytes, "the header");
  std::vector<Entry> entries;
  const json header = parse_header(path, text);
  for (const auto& [name, fields] : header.items())
    if (name != "__metadata__") entries.push_back(read_entry(path, name, fields));
  const std::uint64_t data_begin = 8 + header_bytes;
  check_extents(path, entries, size - data_begin);
  std::vector<HostTensor> tensors;
  for (const Entry& entry : entries) tensors.push_back(load(path, file, entry, data_begin));
  return tensors;
}

}  // namespace ejk::tools
