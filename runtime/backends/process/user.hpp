// Whose files are what: this process's user as others, and the file system, see him.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>

namespace ejk {

// In a user namespace that does not map it (a container without root), every foreign owner shows as this number: root of the machine among
// them, whose folders lie above everything. -1: all numbers mean what they say.
uid_t unmapped_owner();

// Useradd's convention: a group of the user's own number is his alone. Root's own is not meant: in images it is everybody's.
bool private_group(gid_t group);

// "" or who could put another folder in the place of one that is made in `folder`: each folder from the root on must be the user's or
// root's, and nobody else may write there, unless it is sticky as /tmp is.
std::string why_exchangeable(const std::filesystem::path& folder);

}  // namespace ejk
