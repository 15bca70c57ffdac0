// Text in columns: widths from the content, numbers to the right.
#pragma once
#include <string>
#include <vector>

namespace ejk::tools {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells);  // missing cells are empty
  std::size_t rows() const { return rows_.size(); }
  std::string text(const std::string& indent = "") const;  // a line of titles, then the rows; for terminals
  std::string markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// 1.5 GB, 12.0 MB, 340 bytes (powers of ten).
std::string bytes_text(double bytes);
// 1.23 s, 4.56 ms, 7.89 us
std::string seconds_text(double seconds);
// Three significant digits without an exponent where that is readable: 312, 31.2, 0.312, 3.12e-05.
std::string digits(double value);
// 12.3% of 0.123
std::string percent(double part);

}  // namespace ejk::tools
