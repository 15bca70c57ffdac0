// One program of a compiler in this process: NVRTC and hipRTC have the same calls.
#pragma once
#include <string>
#include <vector>

namespace ejk {

// Functions: create, compile, destroy, log_size, log, binary_size, binary; 0 is their success.
template <class Functions, class Program>
class RtcProgram {
 public:
  RtcProgram(const Functions& call, const std::string& source, const char* source_name)
      : call_(call), created_(call.create(&program_, source.c_str(), source_name, 0, nullptr, nullptr)) {}
  RtcProgram(const RtcProgram&) = delete;
  RtcProgram& operator=(const RtcProgram&) = delete;
  ~RtcProgram() {
    if (program_) call_.destroy(&program_);
  }

  int compile(const std::vector<std::string>& options) {
    if (created_ != 0) return created_;
    std::vector<const char*> words;
    for (const auto& option : options) words.push_back(option.c_str());
    return call_.compile(program_, static_cast<int>(words.size()), words.data());
  }
  std::string log() const {  // up to the closing zero
    auto words = text(call_.log_size, call_.log);
    return words.substr(0, words.find('\0'));
  }
  std::string binary() const { return text(call_.binary_size, call_.binary); }

 private:
  std::string text(int (*size_of)(Program, std::size_t*), int (*get)(Program, char*)) const {
    std::size_t size = 0;
    if (!program_ || size_of(program_, &size) != 0 || size == 0) return {};
    std::string bytes(size, '\0');
    return get(program_, bytes.data()) == 0 ? bytes : "";
  }

  const Functions& call_;
  Program program_ = nullptr;
  int created_;
};

}  // namespace ejk
