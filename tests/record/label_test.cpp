// Labels: their text, found again in HLO whatever was done to it, resolved to invocations and configs, and put round launches.
#include "ejk/label.hpp"

#include <dlfcn.h>

#include <fstream>
#include <random>

#include "emulator/simt.hpp"
#include "execute/store_fixture.hpp"

namespace ejk {
namespace {

using Labels = std::vector<std::string>;

Invocation some_invocation() {
  Invocation invocation;
  invocation.kernel = "shift";
  invocation.device = "cpu-generic-1t";
  invocation.tensors = {{"x", TensorView(nullptr, DType::f32, {6})}, {"out", TensorView(nullptr, DType::f32, {6})}};
  invocation.attributes = {{"limit", std::int64_t{100}}};
  return invocation;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}
std::string c_escaped(const std::string& text) { return replaced(replaced(text, "\\", "\\\\"), "\"", "\\\""); }

TEST(Label, IsShortOrTheWholeKey) {
  const auto invocation = some_invocation();
  const auto hash = label(invocation);
  ASSERT_TRUE(hash) << message_of(hash);
  EXPECT_EQ(hash->size(), std::string("ejk:shift:").size() + 16);
  EXPECT_TRUE(hash->starts_with("ejk:shift:"));
  EXPECT_EQ(*label(invocation, Stamp::json), "ejk:shift:" + invocation.key());
  EXPECT_EQ(*label(invocation, Stamp::none), "");
  EXPECT_EQ(*label("shift", invocation.key()), *hash) << "the key is enough";
  auto other = invocation;
  other.attributes["limit"] = std::int64_t{99};
  EXPECT_NE(*label(other), *hash);
}

TEST(Label, IsAsciiBoundedAndOfPlainNames) {
  auto invocation = some_invocation();
  invocation.attributes["name"] = std::string("\u00e9\"\\");
  const auto text = *label(invocation, Stamp::json);
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= 32 && c < 127; })) << text;
  EXPECT_EQ(invocation_from_json(text.substr(text.find('{')))->key(), invocation.key());
  invocation.attributes["name"] = std::string(5000, 'n');
  EXPECT_EQ(*label(invocation, Stamp::json), *label(invocation, Stamp::hash));
  invocation.kernel = "my kernel:1";
  EXPECT_TRUE(label(invocation)->starts_with("ejk:my_kernel_1:"));
}

class HloLabels : public ::testing::Test {
 protected:
  static Labels of(const std::string& text) { return extract_labels_from_hlo_text(text); }
  const std::string hash = *label(some_invocation()), json = *label(some_invocation(), Stamp::json);
};

TEST_F(HloLabels, AreFoundInMetadataAndConfigs) {
  EXPECT_EQ(of(R"(%f = f32[6] custom-call(%x), metadata={op_name="jit(step)/)" + hash + R"(/add" source_file="a.py"})"), Labels{hash});
  EXPECT_EQ(of(R"(metadata={op_name="jit(step)/)" + c_escaped(json) + R"(/add"})"), Labels{json}) << "HLO text";
  EXPECT_EQ(of(R"(backend_config={"label":")" + c_escaped(json) + R"("})"), Labels{json}) << "JSON";
  EXPECT_EQ(of(R"(backend_config=")" + c_escaped(R"({"label":")" + c_escaped(json) + R"("})") + "\""), Labels{json}) << "JSON in a string";
  EXPECT_EQ(of(c_escaped(c_escaped(c_escaped(json)))), Labels{json}) << "three layers";
  EXPECT_EQ(of("loc(\"" + replaced(json, "\"", "\\22") + "\"(#loc1))"), Labels{json}) << "MLIR";
  EXPECT_EQ(of("\"" + replaced(json, "\"", "\\042") + "\""), Labels{json}) << "octal";
  EXPECT_EQ(of("\"" + replaced(json, "\"", "\\x22") + "\""), Labels{json});
  EXPECT_EQ(of(json), Labels{json}) << "as it is";
  EXPECT_EQ(of("%" + hash + ".1 = f32[] fusion()"), Labels{hash});
}

TEST_F(HloLabels, SurviveEscapesOfTheirOwn) {
  auto invocation = some_invocation();
  invocation.attributes["name"] = std::string("a\"b\\c{}\u00e9 ejk:");
  const auto text = *label(invocation, Stamp::json);
  EXPECT_EQ(of("op_name=\"" + c_escaped(text) + "\""), Labels{text});
  EXPECT_EQ(of("loc(\"" + replaced(replaced(text, "\\", "\\5C"), "\"", "\\22") + "\")"), Labels{text});
}

TEST_F(HloLabels, WithinALabelThereIsNoOther) {
  auto invocation = some_invocation();
  invocation.attributes["name"] = json + hash;
  const auto text = *label(invocation, Stamp::json);
  EXPECT_EQ(of(text), Labels{text});
  EXPECT_EQ(of("op_name=\"" + c_escaped(text) + "\" " + hash), (Labels{text, hash}));
}

TEST_F(HloLabels, ComeOnceInOrder) {
  EXPECT_EQ(of(json + " " + hash + " \"" + c_escaped(json) + "\" " + hash), (Labels{json, hash}));
  EXPECT_TRUE(of("").empty());
}

TEST_F(HloLabels, AreNotSeenInOtherWords) {
  for (const auto* text : {"xejk:shift:0123456789abcdef", "ejk:", "ejk::0123456789abcdef", "ejk:shift", "ejk:a b:0123456789abcdef",
                           "prefix_ejk:shift:0123456789abcdef", "ejk:shift:0123456789ABCDEF"}) {
    Labels damaged;
    EXPECT_TRUE(extract_labels_from_hlo_text(text, &damaged).empty()) << text;
  }
}

TEST_F(HloLabels, CutOffOrGarbledAreTold) {
  for (const auto& text :
       {hash.substr(0, hash.size() - 1), hash + "0", json.substr(0, json.size() - 1), std::string("ejk:shift:{"),
        std::string("ejk:shift:{\"kernel\""), std::string("ejk:shift:{\"a\":1}"), std::string("ejk:shift:{\"kernel\":\"\xff\"}")}) {
    Labels damaged;
    EXPECT_TRUE(extract_labels_from_hlo_text("op_name=\"" + text, &damaged).empty()) << text;
    ASSERT_EQ(damaged.size(), 1u) << text;
    EXPECT_TRUE(damaged[0].starts_with("at byte 9: ejk:shift:")) << damaged[0];
  }
}

// Every prefix of a dump, and dumps with bytes changed: whatever is found is a label, and one that was not touched is found.
TEST_F(HloLabels, NothingBreaksTheScan) {
  const auto text = "metadata={op_name=\"a/" + c_escaped(json) + "/b\"}\nx " + hash + "\n";
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const auto found = of(text.substr(0, length));
    EXPECT_EQ(found.size(), (length > text.find("/b") - 1 ? 1u : 0u) + (length >= text.size() - 1 ? 1u : 0u)) << length;
  }
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    auto noisy = text;
    for (int i = 0; i < 4; ++i) noisy[random() % (text.size() / 2)] = "\"\\{}:0aejk\x80\0"[random() % 12];
    const auto found = of(noisy);
    ASSERT_FALSE(found.empty()) << "the untouched half holds a label";
    for (const auto& each : found) ASSERT_EQ(of(each), Labels{each}) << each;
  }
}

TEST_F(HloLabels, AreFoundInHugeFiles) {
  std::string text;
  while (text.size() < (std::size_t{64} << 20))
    text += "%fusion.1 = f32[128,128] fusion(%a), kind=kLoop, metadata={op_name=\"jit(f)/ejk_like/dot\"}\n";
  text += "op_name=\"" + c_escaped(json) + "\"";
  EXPECT_EQ(of(text), Labels{json});
}

class LabelConfigs : public StoreTest {
 protected:
  void SetUp() override { use_test_store(); }
  static Status shift(std::int64_t count) {
    static float memory[256];
    return call("shift", {{"x", TensorView(memory, DType::f32, {count})}, {"out", TensorView(memory + 128, DType::f32, {count})}}, {});
  }
};

TEST_F(LabelConfigs, JsonLabelsAndRecordedHashesAreResolved) {
  const auto trace = (folder / "trace.jsonl").string();
  setenv("EJKERNEL_OPS_RECORD", trace.c_str(), 1);
  ASSERT_TRUE(shift(6));
  ASSERT_TRUE(shift(8));
  const auto calls = get_invocations(trace);
  ASSERT_EQ(calls->invocations.size(), 2u);
  const Labels labels{*label(calls->invocations[1].invocation),
                      *label(calls->invocations[0].invocation, Stamp::json),
                      "ejk:shift:0123456789abcdef",
                      "nonsense",
                      R"(ejk:shift:{"kernel":"shift"})",
                      R"(ejk:none:{"attributes":{},"device":"cpu-generic-1t","kernel":"none","tensors":{}})"};
  const auto configs = labels_to_configs(labels, trace);
  ASSERT_TRUE(configs) << message_of(configs);
  ASSERT_EQ(configs->size(), labels.size());
  ASSERT_TRUE((*configs)[0].selection) << (*configs)[0].why_not;
  EXPECT_EQ((*configs)[0].selection->config, (Config{"wide", "cpu:generic", {{"block", std::int64_t{8}}}}));
  EXPECT_EQ((*configs)[1].selection->config, (Config{"wide", "cpu:generic", {{"block", std::int64_t{2}}}}));
  EXPECT_EQ((*configs)[1].invocation->invocation.tensors.at("x").shape[0], 6);
  EXPECT_EQ((*configs)[2].why_not, "no recorded call and no tuning record has this hash");
  EXPECT_EQ((*configs)[3].why_not, "not a label: expected ejk:<kernel>:<16 hex digits> or ejk:<kernel>:<JSON>");
  EXPECT_EQ((*configs)[4].why_not, "label: no 'device'");
  EXPECT_EQ((*configs)[5].why_not, "no kernel 'none'; the stores have shift");
  EXPECT_EQ(labels_to_configs(labels, "/nowhere").error().code, ErrorCode::io);
}

TEST_F(LabelConfigs, HashesAreFoundAmongTuningRecords) {
  ASSERT_TRUE(shift(6));
  const recording scope;
  ASSERT_TRUE(shift(6));
  const auto invocation = get_invocations(scope).invocations[0].invocation;
  const auto place = folder / "cache" / "tuned" / "some-other-device";
  std::filesystem::create_directories(place);
  std::ofstream(place / "shift.jsonl") << "no JSON\n{\"key\":{}}\n{\"key\":" << invocation.key() << ",\"config\":{\"block\":4}}\n";
  const auto configs = labels_to_configs(Labels{*label(invocation)});
  ASSERT_TRUE(configs) << message_of(configs);
  ASSERT_TRUE((*configs)[0].selection) << (*configs)[0].why_not;
  EXPECT_EQ((*configs)[0].invocation->invocation.key(), invocation.key());
}

class LabelsOfTheEmulator : public StoreTest {
 protected:
  void SetUp() override {
    add_backend(simt_backend());
    use_project_store();
  }
};

// Two calls of one key: what the second one's address allows is another config.
TEST_F(LabelsOfTheEmulator, AHashStandsForCallsOfEveryRecordedAlignment) {
  RecordedInvocation call;
  call.invocation.kernel = "mean_pooling";
  call.invocation.device = "simt-warp32";
  for (const auto& [name, shape] : {std::pair{"x", std::vector<std::int64_t>{2, 8, 32}}, {"out", {2, 32}}}) {
    call.invocation.tensors[name] = TensorView(nullptr, DType::f32, shape);
    call.invocation.tensors[name].device = {DeviceType::extension, 0};
  }
  std::ofstream file(folder / "trace.jsonl");
  file << *to_json(call) << "\n";
  call.alignment = {{"x", 4}};
  file << *to_json(call) << "\n";
  file.close();
  const auto configs = labels_to_configs(Labels{*label(call.invocation)}, (folder / "trace.jsonl").string());
  ASSERT_TRUE(configs) << message_of(configs);
  ASSERT_EQ(configs->size(), 2u);
  ASSERT_TRUE((*configs)[0].selection && (*configs)[1].selection) << (*configs)[0].why_not << (*configs)[1].why_not;
  EXPECT_EQ((*configs)[0].selection->config.values.at("vec"), Value(std::int64_t{4}));
  EXPECT_EQ((*configs)[1].selection->config.values.at("vec"), Value(std::int64_t{1}));
}

// The device of the label is not here: its name tells the arch.
TEST_F(LabelConfigs, ACpuThatIsNotHereIsKnownByItsName) {
  auto invocation = some_invocation();
  invocation.device = "cpu-generic-77t";
  const auto configs = labels_to_configs(Labels{*label(invocation, Stamp::json)});
  ASSERT_TRUE((*configs)[0].selection) << (*configs)[0].why_not;
  EXPECT_EQ((*configs)[0].selection->config.arch, "cpu:generic");
  invocation.device = "cuda-nvidia-h200-132sm";
  EXPECT_EQ(
      (*labels_to_configs(Labels{*label(invocation, Stamp::json)}))[0].why_not,
      "device 'cuda-nvidia-h200-132sm' is not here, and its name tells no arch of these specs; record the call again, or name a device "
      "that is here");
}

class Stamps : public LabelConfigs {
 protected:
  void listen(const char* stamp) {
    setenv("NVTX_INJECTION64_PATH", EJK_FAKE_PROFILER, 1);
    setenv("EJKERNEL_OPS_STAMP", stamp, 1);
  }
  static std::string told() {
    void* library = dlopen(EJK_FAKE_PROFILER, RTLD_NOW | RTLD_NOLOAD);
    return library ? reinterpret_cast<const char* (*)()>(dlsym(library, "fake_profiler_told"))() : "not loaded";
  }
  // The label of shift(6).
  static std::string label_of_call(Stamp stamp) {
    const recording scope;
    EXPECT_TRUE(shift(6));
    return *label(get_invocations(scope).invocations[0].invocation, stamp);
  }
};

TEST_F(Stamps, HashNamesARangeRoundEveryCall) {
  listen("hash");
  ASSERT_TRUE(shift(6));
  const auto text = label_of_call(Stamp::hash);
  EXPECT_EQ(told(), "+" + text + "\n-\n+" + text + "\n-\n");
}

TEST_F(Stamps, JsonNamesTheWholeCall) {
  listen("json");
  const auto text = label_of_call(Stamp::json);
  EXPECT_EQ(told(), "+" + text + "\n-\n");
}

TEST_F(Stamps, NoneLoadsNothing) {
  listen("none");
  ASSERT_TRUE(shift(6));
  EXPECT_EQ(told(), "not loaded");
}

TEST_F(Stamps, AToolThatRefusesBreaksNoCall) {
  listen("hash");
  setenv("FAKE_PROFILER_REFUSES", "1", 1);
  ASSERT_TRUE(shift(6));
  EXPECT_EQ(told(), "");
  EXPECT_NE(info()->find("fake_profiler.so: the tool refused"), std::string::npos) << *info();
}

TEST_F(Stamps, InfoTellsWhatListens) {
  listen("hash");
  EXPECT_NE(info()->find(std::string("NVTX_INJECTION64_PATH=") + EJK_FAKE_PROFILER), std::string::npos) << *info();
}

TEST_F(Stamps, AnotherValueIsAnError) {
  setenv("EJKERNEL_OPS_STAMP", "yes", 1);
  EXPECT_EQ(message_of(shift(6)), "environment variable EJKERNEL_OPS_STAMP is 'yes'; expected none, hash or json, or unset it");
}

}  // namespace
}  // namespace ejk
