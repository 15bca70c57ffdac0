// A vendor's library, looked for at run time: the first of several names that loads, and its functions.
#pragma once
#include <string>
#include <vector>

namespace ejk {

struct VendorLibrary {
  void* handle = nullptr;  // never closed
  std::string path;        // of the file that was loaded
  std::string why_not;     // if none: "looked for A, B and C; C: the loader's words"
};

// Candidates are file names (found by the loader) and paths. What the loader says of one that exists, but does not load, is told.
VendorLibrary open_first(const std::vector<std::string>& candidates);

// The file that holds the symbol at that address, without links; empty: unknown.
std::string file_of(const void* symbol);

// Reads functions by name, and keeps the names that are not there.
class SymbolReader {
 public:
  explicit SymbolReader(void* library) : library_(library) {}
  template <class F>
  void operator()(const char* name, F& function) {
    function = reinterpret_cast<F>(find(name));
  }
  const std::string& missing() const { return missing_; }  // "cuA, cuB"; empty: all are there

 private:
  void* find(const char* name);
  void* library_;
  std::string missing_;
};

}  // namespace ejk
