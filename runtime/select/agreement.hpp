// Agreement of the processes of one job on one key: a lock that one of them holds while it measures, and word of a failure.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "ejk/kernel.hpp"
#include "ejk/tuning.hpp"
#include "store/held_folder.hpp"

namespace ejk {

// The folder of one device in an agreement's: held, and judged. It is this user's or root's and nobody else's to write, or shared with a
// group of this process: mode 2770 or 2775, then what is made in it is the group's too. Others may never write there. Throws
// std::runtime_error; open: nullopt with why_not empty where there is none.
store::HeldFolder make_agreement_folder(const std::string& folder, const std::string& device);
std::optional<store::HeldFolder> open_agreement_folder(const std::string& folder, const std::string& device, std::string& why_not);

// As append_record(), into an agreement's folder.
Status append_agreed(const std::string& folder, const TuningRecord& record);

// Files <folder>/<device>/.<kernel>-<hash of the key>.lock and .failed beside the records. The lock goes with its process. No link is
// followed, and nothing is written into a file that has another name elsewhere.
class Agreement {
 public:
  Agreement(const std::string& folder, const Invocation& invocation, const std::string& key);
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;
  ~Agreement();
  // "" once the lock is held; otherwise why not: the time is up, or the folder cannot be written.
  std::string wait(std::chrono::seconds at_most);
  std::optional<std::string> failure() const;  // what another process said of its attempt
  void note_failure(const std::string& reason) const;

 private:
  const std::string folder_, device_, stem_;
  std::optional<store::HeldFolder> held_;
  int fd_ = -1;
};

}  // namespace ejk
