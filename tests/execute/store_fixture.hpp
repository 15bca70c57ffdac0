// Each test runs in a process of its own with a fresh user cache; the test store is specs and templates only, so images are compiled on
// demand.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "ejk/ejk.hpp"
#include "tests/paths.hpp"

namespace ejk {

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    char pattern[] = "/tmp/ejk-execute-XXXXXX";
    folder = mkdtemp(pattern);
    std::filesystem::create_directories(folder / "cache");
    std::filesystem::permissions(folder / "cache", std::filesystem::perms::owner_all);
    setenv("EJKERNEL_CACHE_DIR", (folder / "cache").c_str(), 1);
    for (const auto* name : {"EJKERNEL_STORE", "EJKERNEL_JIT", "EJKERNEL_THREADS", "EJKERNEL_LOG", "EJKERNEL_AUTOTUNE_POLICY",
                             "EJKERNEL_LOG_AUTOTUNE", "EJKERNEL_AGREEMENT", "EJKERNEL_AGREEMENT_TIMEOUT", "EJKERNEL_SMEM_LIMIT",
                             "EJKERNEL_OPS_STAMP", "EJKERNEL_OPS_RECORD", "EJKERNEL_CHECK", "EJKERNEL_TRUST", "EJKERNEL_PLAN_MEMORY"})
      unsetenv(name);
  }
  ~StoreTest() override { std::filesystem::remove_all(folder); }

  // The small kernel of tests/execute/data.
  void use_test_store() { ASSERT_TRUE(add_store(test::source_dir() + "/tests/execute/data")); }
  // The project's own kernels, compiled on demand.
  void use_project_store() { ASSERT_TRUE(add_store(test::source_dir())); }
  // The project's kernels as if nothing had been measured: the shipped records would answer on machines like those they were made on.
  void use_project_without_records() {
    const std::filesystem::path source = test::source_dir(), store = folder / "project";
    std::filesystem::create_directories(store / "specs");
    for (const auto& entry : std::filesystem::directory_iterator(source / "specs"))
      if (entry.path().filename() != "tuned") std::filesystem::create_symlink(entry.path(), store / "specs" / entry.path().filename());
    std::filesystem::create_directory_symlink(source / "templates", store / "templates");
    ASSERT_TRUE(add_store(store.string()));
  }

  std::filesystem::path folder;
};

// The message of a failed Status or Result; "" if it did not fail.
template <class T>
std::string message_of(const T& result) {
  return result ? "" : result.error().message;
}

inline Tensor floats(std::initializer_list<float> values) {
  Tensor tensor(DType::f32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

}  // namespace ejk
