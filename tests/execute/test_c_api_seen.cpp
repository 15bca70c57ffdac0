// Calls that a binding has seen before (ejk_seen), on objects of a made-up language.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "ejk/ejk.h"

namespace ejk {
namespace {

struct Object {
  const void* type = nullptr;
  std::vector<std::int64_t> shape, strides;
  ejk_tensor tensor{nullptr, {1, 0}, 0, {2, 32, 1}, nullptr, nullptr, 0};
  bool refuses = false;
};

using List = std::vector<Object*>;

const int tensor_type = 0, parameter_type = 0, other_type = 0;
Object none;
thread_local std::ptrdiff_t held = 0;  // types that were not given back

const ejk_objects host = {
    [](void* list, std::ptrdiff_t index) -> void* { return (*static_cast<List*>(list))[static_cast<std::size_t>(index)]; },
    [](void* object) -> void* {
      ++held;
      return const_cast<void*>(static_cast<Object*>(object)->type);
    },
    [](void*) { --held; },
    [](void* object, ejk_tensor* tensor) {
      const auto& from = *static_cast<Object*>(object);
      if (from.refuses) return -1;
      *tensor = from.tensor;
      tensor->rank = static_cast<std::int32_t>(from.shape.size());
      tensor->shape = from.shape.data();
      tensor->strides = from.strides.empty() ? nullptr : from.strides.data();
      return 0;
    },
    &none,
    {&tensor_type, &parameter_type}};

Object tensor(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
  return {&tensor_type, std::move(shape), std::move(strides)};
}

class CSeen : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ejk_seen_new(&host, 2, 1, &seen), EJK_OK) << ejk_last_error(); }
  void TearDown() override {
    ejk_seen_release(seen);
    EXPECT_EQ(held, 0);
  }
  std::int64_t find(Object first, Object* second = &none, List* outputs = nullptr) {
    List inputs = {&first, second};
    return ejk_seen_find(seen, &inputs, outputs, data);
  }
  std::int64_t add(Object first, Object* second = &none, List* outputs = nullptr) {
    List inputs = {&first, second};
    return ejk_seen_add(seen, &inputs, outputs);
  }

  ejk_seen* seen = nullptr;
  void* data[3] = {};
};

TEST_F(CSeen, FindsWhatWasAdded) {
  EXPECT_EQ(find(tensor({2, 3})), EJK_NOT_SEEN);
  EXPECT_EQ(add(tensor({2, 3})), 0);
  EXPECT_EQ(add(tensor({2, 3})), 0) << "added twice";
  EXPECT_EQ(add(tensor({3, 2})), 1);
  EXPECT_EQ(find(tensor({2, 3})), 0);
  EXPECT_EQ(find(tensor({3, 2})), 1);
  auto parameter = tensor({3, 2});
  parameter.type = &parameter_type;
  EXPECT_EQ(find(parameter), 1) << "the types mean the same";
}

TEST_F(CSeen, EveryDifferenceCounts) {
  std::vector<Object> objects(6, tensor({2, 3}, {3, 1}));
  objects[1].tensor.dtype.code = 4;
  objects[2].tensor.dtype.bits = 16;
  objects[3].tensor.device.type = 2;
  objects[4].tensor.device.index = 1;
  objects[5].tensor.device = {2, 1};
  for (const auto& strides : std::vector<std::vector<std::int64_t>>{{}, {1, 2}, {4, 1}, {0, 1}, {-3, 1}})
    objects.push_back(tensor({2, 3}, strides));
  objects.push_back(tensor({2}, {0}));
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{}, {0}, {2}, {2, 3, 1}, {1, 2, 3}, {3, 2}, {6}, {0, 3}, {2, 3, 3, 1}})
    objects.push_back(tensor(shape));
  auto out = tensor({2, 3}, {3, 1}), second = tensor({5});
  List given = {&out}, absent = {&none};
  std::int64_t number = 0;
  for (const auto& object : objects)
    for (Object* other : {&none, &second})
      for (List* outputs : {static_cast<List*>(nullptr), &absent, &given}) {
        EXPECT_EQ(find(object, other, outputs), EJK_NOT_SEEN) << number;
        EXPECT_EQ(add(object, other, outputs), number) << number;
        ++number;
      }
  number = 0;
  for (const auto& object : objects)
    for (Object* other : {&none, &second})
      for (List* outputs : {static_cast<List*>(nullptr), &absent, &given}) EXPECT_EQ(find(object, other, outputs), number++);
}

TEST_F(CSeen, TheOrderOfInputsCounts) {
  auto second = tensor({3});
  EXPECT_EQ(add(tensor({2}), &second), 0);
  auto swapped = tensor({2});
  EXPECT_EQ(find(tensor({3}), &swapped), EJK_NOT_SEEN);
}

TEST_F(CSeen, GivesTheFirstElements) {
  float memory[8] = {};
  auto first = tensor({2}), third = tensor({2});
  first.tensor.data = memory;
  first.tensor.byte_offset = 8;
  third.tensor.data = memory + 4;
  List outputs = {&third};
  EXPECT_EQ(find(first, &none, &outputs), EJK_NOT_SEEN);
  EXPECT_EQ(data[0], memory + 2);
  EXPECT_EQ(data[1], memory + 4) << "absent ones are passed over";
  EXPECT_EQ(data[2], nullptr);
}

TEST_F(CSeen, DoesNotReadWhatItDoesNotKnow) {
  EXPECT_EQ(add(tensor({2})), 0);
  Object other = tensor({2}), refuses = tensor({2}), vector = tensor({2});
  other.type = &other_type;
  refuses.refuses = true;
  vector.tensor.dtype.lanes = 4;
  for (const auto& object : {other, refuses, vector, tensor({1, 1, 1, 1, 1, 1, 1, 1, 1})}) {
    EXPECT_EQ(find(object), EJK_NOT_READ);
    EXPECT_EQ(add(object), EJK_NOT_READ);
    auto second = object;
    EXPECT_EQ(find(tensor({2}), &second), EJK_NOT_READ);
    List outputs = {&second};
    EXPECT_EQ(find(tensor({2}), &none, &outputs), EJK_NOT_READ);
  }
}

TEST_F(CSeen, ThreadsAgreeOnNumbers) {
  std::vector<std::vector<std::int64_t>> numbers(4);
  std::vector<std::thread> threads;
  for (auto& mine : numbers)
    threads.emplace_back([this, &mine] {
      void* block[3];
      for (std::int64_t n = 0; n < 200; ++n) {
        auto object = tensor({n + 1});
        List inputs = {&object, &none};
        mine.push_back(ejk_seen_add(seen, &inputs, nullptr));
        if (ejk_seen_find(seen, &inputs, nullptr, block) != mine.back()) mine.back() = -10;
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& mine : numbers) EXPECT_EQ(mine, numbers[0]);
  for (const auto number : numbers[0]) EXPECT_TRUE(number >= 0 && number < 200) << number;
}

TEST(CSeenNew, RefusesWhatCannotBeRead) {
  ejk_seen* seen = nullptr;
  auto lacking = host;
  lacking.tensor = nullptr;
  EXPECT_EQ(ejk_seen_new(&lacking, 1, 1, &seen), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "a function that reads objects is NULL");
  EXPECT_EQ(ejk_seen_new(nullptr, 1, 1, &seen), EJK_BAD_INPUT);
  EXPECT_EQ(ejk_seen_new(&host, 1, 1, nullptr), EJK_BAD_INPUT);
  EXPECT_EQ(ejk_seen_new(&host, 60, 5, &seen), EJK_BAD_INPUT);
  EXPECT_STREQ(ejk_last_error(), "a call has 65 objects; expected at most 64");
  EXPECT_EQ(seen, nullptr);
}

}  // namespace
}  // namespace ejk
