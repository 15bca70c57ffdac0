// Hand-made images, temporary stores and child processes for the store's tests.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "store/build.hpp"
#include "store/obtain.hpp"
#include "store/store.hpp"

namespace ejk::store {

namespace fs = std::filesystem;

inline spec::Arch generic_arch() {
  spec::Arch arch;
  arch.name = "generic";
  arch.platform = "cpu";
  return arch;
}

inline spec::Image make_test_image(const std::string& name, const std::string& source) {
  spec::Image image;
  image.kernel = "toy";
  image.variant = "plain";
  image.arch = "cpu:generic";
  image.id = "toy.plain.cpu_generic." + name;
  image.source = source;
  image.hash = sha256_hex(source).substr(0, 16);
  image.file = "toy/" + image.id + ".cpp";
  return image;
}

// An image whose entry `answer` writes `value` to the int64 its first argument points at.
inline spec::Image answer_image(const std::string& name, int value) {
  return make_test_image(name,
                         "extern \"C\" __attribute__((visibility(\"default\"))) void ejk_answer(void* const* a, const void*) {\n"
                         "  **static_cast<long* const*>(a[0]) = " +
                             std::to_string(value) + ";\n}\n");
}

inline std::int64_t answer_of(Module& module) {
  std::int64_t value = 0, *where = &value;
  void* arguments[] = {&where};
  LaunchRequest request;
  request.entry = module.entry("answer");
  if (!request.entry) return -1;
  request.arguments = arguments;
  cpu_backend().launch(request, nullptr);
  return value;
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "ejk-store-test-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

// Sets an environment variable for a scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

inline std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void spill(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
}

// Every file and folder below root, with the files' contents.
inline std::map<std::string, std::string> tree_of(const fs::path& root) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    tree[entry.path().lexically_relative(root).string()] = entry.is_regular_file() ? slurp(entry.path()) : "/";
  return tree;
}

// A compiler that writes a line to `log` for each kernel it is asked to build, and can be told to fail or to be slow.
inline void write_compiler(const fs::path& path, const fs::path& log, const std::string& extra = {}) {
  spill(path,
        "#!/bin/sh\ncase \"$*\" in *--version*) exec c++ --version;; esac\n"
        "grep -q ejk_small source.cpp || { echo built >> '" +
            log.string() + "'\n" + extra + "\n}\nexec c++ \"$@\"\n");
  fs::permissions(path, fs::perms::owner_all);
}

inline int lines_in(const fs::path& path) {
  const auto text = slurp(path);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

inline pid_t start_child(const std::function<int()>& work) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) _exit(work());
  return pid;
}

inline int wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

inline CompileResult compile(const spec::Image& image) { return cpu_backend().compile(image, generic_arch()); }
inline Found find(const Store& store, const spec::Image& image) { return store.find(image, "cpp", "so"); }
inline Found publish(const Store& store, const spec::Image& image) { return store.publish(image, compile(image), "cpp", "so"); }

}  // namespace ejk::store
