// Drafts, made and removed from their parent's descriptor.
#include "store/draft.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/process/owner.hpp"
#include "store/files.hpp"

namespace ejk::store {

Draft::Draft(const HeldFolder& parent) : parent_(parent), name_(owned_name(temporary_prefix)), folder_(parent.make_folder(name_, 0700)) {}

Draft::~Draft() {
  if (!kept_) parent_.remove(name_);
}

void Draft::open_to_readers() const {
  struct stat facts {};
  if (::fstat(parent_.descriptor(), &facts) == 0) (void)::fchmodat(parent_.descriptor(), name_.c_str(), facts.st_mode & 0777, 0);
}

bool Draft::rename_to(const HeldFolder& to, const std::string& name) const { return kept_ = parent_.rename(name_, to, name); }

}  // namespace ejk::store
