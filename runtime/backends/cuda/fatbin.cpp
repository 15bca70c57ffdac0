// The container's layout is not published; this one is what CUDA 13.0's `fatbinary` writes, which tests compare where that tool is.
#include "backends/cuda/fatbin.hpp"

#include <cstring>

#include "backends/cuda/cubin.hpp"

namespace ejk::cuda {
namespace {

struct FileHeader {
  std::uint32_t magic = 0xba55ed50;
  std::uint16_t version = 1;
  std::uint16_t header_bytes = sizeof(FileHeader);
  std::uint64_t rest_bytes = 0;  // all members
};

constexpr int first_with_record = 100;
constexpr std::uint64_t in_64_bits = 0x11, arch_specific = 1 << 20, has_compatibility = 1 << 24;

struct MemberHeader {
  std::uint16_t kind = 2;  // a cubin
  std::uint16_t version = 0x101;
  std::uint32_t header_bytes = sizeof(MemberHeader);  // with what follows the header
  std::uint64_t data_bytes = 0;
  std::uint32_t compressed_bytes = 0;
  std::uint32_t extension = 0;  // offset of {offset, size} of the compatibility record
  std::uint16_t abi = 8, type = 1;
  std::uint32_t sm = 0;
  std::uint32_t name_offset = 0, name_bytes = 0;
  std::uint64_t flags = in_64_bits;
  std::uint64_t uncompressed_bytes = 0;
  std::uint64_t reserved = 0;
};
static_assert(sizeof(FileHeader) == 16 && sizeof(MemberHeader) == 64);

std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// {offset, size}, a zero byte, then the record; `offset` names the zero byte.
std::string extension_of(const std::string& record) {
  const std::uint32_t place[] = {sizeof(MemberHeader) + 8, static_cast<std::uint32_t>(record.size())};
  return padded(bytes_of(place) + '\0' + record);
}

std::string member_bytes(const FatbinMember& member) {
  const auto data = padded(member.cubin);
  const auto record = member.sm.number() >= first_with_record ? compatibility_record(member.cubin) : "";
  const auto extension = record.empty() ? "" : extension_of(record);
  MemberHeader header;
  header.data_bytes = data.size();
  header.abi = static_cast<std::uint8_t>(member.cubin[8]);  // EI_ABIVERSION
  header.sm = static_cast<std::uint32_t>(member.sm.number());
  if (member.sm.specific) header.flags |= arch_specific;
  if (!extension.empty()) {
    header.extension = sizeof header;
    header.header_bytes += static_cast<std::uint32_t>(extension.size());
    header.flags |= has_compatibility;
  }
  return bytes_of(header) + extension + data;
}

}  // namespace

std::string make_fatbin(const std::vector<FatbinMember>& members) {
  std::string rest;
  for (const auto& member : members) rest += member_bytes(member);
  FileHeader header;
  header.rest_bytes = rest.size();
  return bytes_of(header) + rest;
}

}  // namespace ejk::cuda
