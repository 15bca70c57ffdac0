// A temporary folder in a folder that is held: what is written there appears by a rename, or goes.
#pragma once
#include "store/held_folder.hpp"

namespace ejk::store {

class Draft {
 public:
  // Of mode 0700, named after this process. Throws std::runtime_error.
  explicit Draft(const HeldFolder& parent);
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft();
  const HeldFolder& folder() const { return folder_; }
  void open_to_readers() const;  // its mode becomes the parent's
  // The folder itself goes to that name, if nothing is there. false: errno is rename's.
  bool rename_to(const HeldFolder& to, const std::string& name) const;

 private:
  const HeldFolder& parent_;
  std::string name_;
  HeldFolder folder_;
  mutable bool kept_ = false;
};

}  // namespace ejk::store
