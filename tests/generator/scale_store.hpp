// A copy of tests/generator/data in a folder of its own, to run the generator on.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "generator/generate.hpp"
#include "tests/paths.hpp"

namespace ejk::generator {

namespace fs = std::filesystem;

inline std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::map<std::string, std::string> files_below(const fs::path& folder) {
  std::map<std::string, std::string> files;
  if (fs::exists(folder))
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) files[entry.path().lexically_relative(folder).generic_string()] = text_of(entry.path());
  return files;
}

inline void replace(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = text_of(path);
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  write(path, text.replace(at, from.size(), to));
}

class Generator : public testing::Test {
 protected:
  Generator() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) / ("ejk_generator_" + std::string(test->name()) + "_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    for (const char* folder : {"specs", "templates"})
      fs::copy(fs::path(test::source_dir() + "/tests/generator/data") / folder, root_ / folder, fs::copy_options::recursive);
    options_.specs = root_ / "specs";
    options_.templates = root_ / "templates";
    options_.out = root_ / "generated";
  }
  ~Generator() override { fs::remove_all(root_); }

  fs::path root_;
  Options options_;
};

}  // namespace ejk::generator
