// The program that configs are tried in: `ejk worker`.
#pragma once
#include <string>
#include <vector>

namespace ejk {

struct WorkerProgram {
  std::string path;                 // empty: none was found
  std::vector<std::string> looked;  // where
  std::string why_not() const;      // "no worker program: looked for ..."
};

// `named`, if it is not empty; else this program if it is ejk, else ejk beside this library or program, or in ../bin.
WorkerProgram find_worker(const std::string& named = {});

}  // namespace ejk
