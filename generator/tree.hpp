// What the output tree holds, file by file; where the files go is another matter.
#pragma once
#include <string>
#include <string_view>

#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"

namespace ejk::generator {

inline constexpr const char* lock_name = "kernels.lock";
// Files with an entry an image: they grow line by line.
inline constexpr const char* long_files[] = {"compile_commands.json", lock_name, "manifest.json"};

// Takes the files of a tree: those with our mark whole, long ones by pieces. Nothing is held for longer than a call.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void file(const std::string& name, const std::string& bytes) = 0;
  virtual void append(const std::string& name, std::string_view bytes) = 0;
};

// src/, include/ejk/, python/, kernels.lock, compile_commands.json, manifest.json.
class TreeMaker {
 public:
  TreeMaker(const spec::Catalogue& catalogue, Sink& sink) : catalogue_(catalogue), sink_(sink) {}
  void add(const spec::Image& image);  // in ascending order of ids
  void finish();
  std::size_t images() const { return images_; }

 private:
  const spec::Catalogue& catalogue_;
  Sink& sink_;
  std::size_t images_ = 0;
};

}  // namespace ejk::generator
