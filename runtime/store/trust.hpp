// Who may have written what is loaded: owners and modes of folders and files. Access lists need no look of their own: what they grant to
// others shows in the mode's group bits.
#pragma once
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ejk::store {

class Trust {
 public:
  // Where a folder or file lies, as seen from the folder that was asked for.
  enum class Where { above, at, inside };

  // The user alone writes there; above it also root and who owns the library.
  static Trust cache();
  // The user, root and who owns the library: whose code runs in this process anyway. Links in it are followed, each step judged.
  static Trust pack();
  // An agreement's folder: as a cache, or shared by a group that the process belongs to, whose members then count as its user.
  // `facts` are the folder's own.
  static Trust agreement(const struct stat& facts);
  // A folder that a person named to write into: nothing is judged.
  static Trust named();

  // "" or why not, in a sentence with what to do. A link's mode says nothing: only its owner is asked.
  std::string fault(const struct stat& facts, const std::filesystem::path& path, Where where) const;
  // Whether fault() returns "", for callers that have no path yet: making one takes longer than the judgement.
  bool accepts(const struct stat& facts, Where where) const;
  bool follows_links() const { return follows_links_; }
  bool shared() const { return shared_; }

  // EJKERNEL_TRUST: the folder, or one above it, is named there. Such a folder and all in it is used whoever can write to it.
  static bool exempt(const std::filesystem::path& folder);

 private:
  enum class Kind { cache, pack, agreement, named };
  explicit Trust(Kind kind);
  bool owned(const struct stat& facts, Where where) const;
  bool closed(const struct stat& facts, Where where) const;
  std::string subject(const std::filesystem::path& path, Where where) const;
  std::string advice(Where where) const;

  Kind kind_;
  bool follows_links_ = false, shared_ = false;
  std::vector<uid_t> owners_;  // of what lies above, and of packs, besides the user and root
  std::vector<gid_t> groups_;  // that may write there
};

}  // namespace ejk::store
