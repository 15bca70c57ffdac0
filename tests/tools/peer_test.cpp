// The conversation with the Python child, by stand-ins for Python that say set things; and what is said when there is none.
#include "bench/peer.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "references/calls.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

class PeerTest : public ::testing::Test {
 protected:
  PeerTest() {
    char pattern[] = "/tmp/ejk-peer-XXXXXX";
    folder = mkdtemp(pattern);
  }
  ~PeerTest() override { fs::remove_all(folder); }

  // A program that answers the i-th request with the i-th line, and keeps the requests.
  std::string python(const std::string& answers) const {
    std::ofstream(folder / "answers") << answers;
    const auto path = folder / "python";
    std::ofstream(path) << "#!/bin/sh\nexec 3< " << (folder / "answers").string() << "\nwhile read -r request; do\n"
                        << "  printf '%s\\n' \"$request\" >> " << (folder / "requests").string() << "\n"
                        << "  read -r answer <&3 || exit 7\n  printf '%s\\n' \"$answer\"\ndone\n";
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  std::string failure(const std::string& program, const std::string& device = "cuda:0", const std::string& library = "torch") const {
    try {
      Peer(library, program, device).versions();
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder;
};

TEST_F(PeerTest, MeasuresWhatItPrepared) {
  Peer peer("torch",
            python("{\"versions\": \"torch 9\"}\n"
                   "{\"peers\": [{\"id\": 0, \"name\": \"torch.mean\"}, {\"name\": \"other\", \"why_not\": \"no\"}]}\n"
                   "{\"seconds\": 0.25}\n{}\n"),
            "cuda:1");
  EXPECT_EQ(peer.versions(), "torch 9");
  spec::Case c;
  c.name = "packed";
  c.types = {{"E", "bf16"}};
  c.dims = {{"N", std::int64_t{3}}, {"T", std::int64_t{20}}, {"C", std::int64_t{4}}};
  c.given = {"cum_seqlens"};
  const auto call = reference::make_call(reference::spec_of("mean_pooling"), c, 5);
  peer.start_preparing(call);
  const auto kernels = peer.prepared();
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].id, 0);
  EXPECT_EQ(kernels[0].name, "torch.mean");
  EXPECT_EQ(kernels[0].why_not, "");
  EXPECT_EQ(kernels[1].why_not, "no");
  EXPECT_EQ(peer.seconds(0, 3, true), 0.25);
  peer.drop();

  std::ifstream file(folder / "requests");
  std::vector<nlohmann::json> requests;
  for (std::string line; std::getline(file, line);) requests.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0], (nlohmann::json{{"do", "hello"}, {"device", "cuda:1"}}));
  const auto& told = requests[1]["call"];
  EXPECT_EQ(told["kernel"], "mean_pooling");
  EXPECT_EQ(told["form"], "packed");
  EXPECT_EQ(told["attributes"]["chunk_size"], 0);
  EXPECT_EQ(told["tensors"]["x"], (nlohmann::json{{"type", "bf16"}, {"shape", {20, 4}}}));
  ASSERT_EQ(told["tensors"]["cum_seqlens"]["values"].size(), 4u);
  EXPECT_EQ(told["tensors"]["cum_seqlens"]["values"][0], 0);
  EXPECT_EQ(requests[2], (nlohmann::json{{"do", "measure"}, {"id", 0}, {"count", 3}, {"cold", true}}));
  EXPECT_EQ(requests[3], (nlohmann::json{{"do", "drop"}}));
}

TEST_F(PeerTest, AMissingPythonIsNamed) {
  EXPECT_EQ(failure((folder / "none").string()), "--against torch: " + (folder / "none").string() +
                                                     " cannot be started: No such file or directory; name a Python that has torch with "
                                                     "--python PATH");
}

TEST_F(PeerTest, ItsErrorsAreTold) {
  const auto program = python("{\"error\": \"ModuleNotFoundError: No module named 'torch'\"}\n");
  EXPECT_EQ(failure(program),
            "--against torch: " + program +
                " says: ModuleNotFoundError: No module named 'torch'; name a Python that has torch for this device with --python "
                "PATH");
}

TEST_F(PeerTest, AnEarlyEndIsTold) {
  const auto program = python("");
  EXPECT_EQ(failure(program), "--against torch: " + program + " ended early (exit code 7); its words are above");
}

TEST_F(PeerTest, WordsThatAreNoJsonAreTold) {
  const auto program = python("hello\n");
  EXPECT_EQ(failure(program), "--against torch: " + program + " answered 'hello', expected JSON");
}

// The real scripts under the system's Python: it has no such library, or one that knows no such device.
TEST_F(PeerTest, TheScriptsRunAndSayWhatTheyLack) {
  EXPECT_EQ(peer_libraries(), (std::vector<std::string>{"torch", "ejkernel", "fa3", "fla"}));
  for (const auto& library : peer_libraries()) {
    const auto words = failure("/usr/bin/python3", "nothing:0", library);
    EXPECT_TRUE(words.starts_with("--against " + library + ": /usr/bin/python3 says: ")) << words;
  }
}

}  // namespace
}  // namespace ejk::tools
