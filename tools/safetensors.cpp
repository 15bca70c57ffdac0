// The common part of safetensors reading and writing is the type table; each direction has its own functions below.
#include "safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ejk::tools {
namespace {

using nlohmann::json;
using reference::HostTensor;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian; bytes are copied as they are");

constexpr std::uint64_t longest_header = 100'000'000;  // the format's own limit

struct TypeName {
  const char* name;
  DType type;
};
constexpr TypeName types[] = {{"F64", DType::f64},      {"F32", DType::f32},        {"F16", DType::f16}, {"BF16", DType::bf16},
                              {"I64", DType::i64},      {"I32", DType::i32},        {"I8", DType::i8},   {"U8", DType::u8},
                              {"BOOL", DType::boolean}, {"F8_E4M3", DType::f8_e4m3}};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& sentence) {
  throw std::runtime_error(path.string() + ": " + sentence);
}

// ---- reading ----

struct Entry {
  std::string name;
  DType type = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the header's end
};

// Parses and refuses duplicate keys, which the JSON library would silently merge.
json parse_header(const std::filesystem::path& path, const std::string& text) {
  std::vector<std::set<std::string>> objects;
  std::string duplicate;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) objects.emplace_back();
    if (event == json::parse_event_t::object_end) objects.pop_back();
    if (event == json::parse_event_t::key && !objects.back().insert(parsed.get<std::string>()).second)
      duplicate = parsed.get<std::string>();
    return true;
  };
  try {
    json header = json::parse(text, watch);
    if (!header.is_object()) fail(path, "the header is not a JSON object");
    if (!duplicate.empty()) fail(path, fmt::format("the name '{}' occurs twice in the header", duplicate));
    return header;
  } catch (const json::exception& e) {
    fail(path, fmt::format("the header is not JSON: {}", e.what()));
  }
}

DType type_named(const std::filesystem::path& path, const std::string& tensor, const std::string& name) {
  std::string known;
  for (const TypeName& type : types) {
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

HostTensor load(const std::filesystem::path& path, std::ifstream& file, const Entry& entry, std::uint64_t data_begin) {
  HostTensor tensor(entry.name, entry.type, entry.shape);
  const auto bytes = static_cast<std::streamsize>(entry.end - entry.begin);
  file.seekg(static_cast<std::streamoff>(data_begin + entry.begin));
  if (!file.read(static_cast<char*>(tensor.data()), bytes))
    fail(path, fmt::format("cannot read tensor '{}': {}", entry.name, std::strerror(errno)));
  if (entry.type != DType::boolean) return tensor;
  const auto* values = static_cast<const unsigned char*>(tensor.data());
  for (std::streamsize i = 0; i < bytes; ++i)
    if (values[i] > 1) fail(path, fmt::format("tensor '{}': byte {} is {}, a BOOL is 0 or 1", entry.name, i, values[i]));
  return tensor;
}

// ---- writing ----

const char* name_in_file(DType type) {
  for (const TypeName& known : types)
    if (known.type == type) return known.name;
  return "";
}

// Largest elements first: without holes, every tensor then starts at a multiple of its element size.
std::vector<const HostTensor*> in_file_order(std::span<const HostTensor> tensors) {
  std::vector<const HostTensor*> order;
  for (const HostTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const HostTensor* a, const HostTensor* b) {
    return std::pair(-size_of(a->type()), a->name()) < std::pair(-size_of(b->type()), b->name());
  });
  return order;
}

std::string header_of(const std::filesystem::path& path, const std::vector<const HostTensor*>& order) {
  json header = json::object();
  std::int64_t offset = 0;
  for (const HostTensor* tensor : order) {
    const std::int64_t end = offset + tensor->elements() * size_of(tensor->type());
    if (header.contains(tensor->name())) fail(path, fmt::format("two tensors are named '{}'", tensor->name()));
    header[tensor->name()] = {{"dtype", name_in_file(tensor->type())}, {"shape", tensor->shape()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // the data starts at a multiple of 64 bytes of the file
  return text;
}

// A file that vanishes unless it is published.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target) : target_(followed(target)), name_(target_.string() + ".XXXXXX") {
    descriptor_ = ::mkstemp(name_.data());
    if (descriptor_ < 0) fail(target_, fmt::format("cannot create a file beside it: {}", std::strerror(errno)));
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!published_) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    for (const char* next = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t written = ::write(descriptor_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(target_, fmt::format("cannot write: {}", std::strerror(errno)));
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
  void publish() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    const bool flushed = ::fchmod(descriptor_, 0666 & ~mask) == 0 && ::fsync(descriptor_) == 0;
    if (!flushed || ::rename(name_.c_str(), target_.c_str()) != 0) fail(target_, fmt::format("cannot write: {}", std::strerror(errno)));
    published_ = true;
  }

 private:
  // Where a link leads. Not a device or a pipe: the rename would put a file in its place.
  static std::filesystem::path followed(const std::filesystem::path& target) {
    std::error_code error;
    const auto status = std::filesystem::status(target, error);
    if (!std::filesystem::exists(status)) return target;
    if (!std::filesystem::is_regular_file(status)) fail(target, "is there and is not a regular file; name another");
    return std::filesystem::canonical(target);
  }

  std::filesystem::path target_;
  std::string name_;
  int descriptor_ = -1;
  bool published_ = false;
};

}  // namespace

std::vector<HostTensor> read_safetensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail(path, fmt::format("cannot open: {}", std::strerror(errno)));
  const std::streamoff end = file.tellg();
  if (end < 0 || std::filesystem::is_directory(path)) fail(path, "is not a regular file");
  const auto size = static_cast<std::uint64_t>(end);
  std::uint64_t header_bytes = 0;
  if (size < sizeof header_bytes)
    fail(path, fmt::format("holds {} bytes, a safetensors file starts with 8 that give the header's length", size));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes);
  if (header_bytes > longest_header)
    fail(path, fmt::format("the header's length is given as {}, at most {} are legal; is this a safetensors file?", header_bytes,
                           longest_header));
  if (header_bytes > size - 8)
    fail(path, fmt::format("the header's length is given as {}, but the file holds {} more bytes", header_bytes, size - 8));
  std::string text(header_bytes, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(header_bytes)))
    fail(path, fmt::format("cannot read the header: {}", std::strerror(errno)));
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

void write_safetensors(const std::filesystem::path& path, std::span<const HostTensor> tensors) {
  const std::vector<const HostTensor*> order = in_file_order(tensors);
  const std::string header = header_of(path, order);
  const std::uint64_t header_bytes = header.size();
  TemporaryFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(header.data(), header.size());
  for (const HostTensor* tensor : order) {
    const std::vector<std::byte> bytes = tensor->row_major_bytes();
    file.write(bytes.data(), bytes.size());
  }
  file.publish();
}

}  // namespace ejk::tools
