// Column layout, and numbers as people read them.
#include "command_line/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ejk::tools {
namespace {

// Characters, not bytes, of UTF-8.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t to, Align align) {
  const std::string gap(to - std::min(to, width(text)), ' ');
  return align == Align::right ? gap + text : text + gap;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

void Table::row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(const std::string& indent) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(width(columns_[i].title));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], width(row[i]));
  }
  const auto line = [&](const auto& cell) {
    std::string result = indent;
    for (std::size_t i = 0; i < columns_.size(); ++i) result += (i ? "  " : "") + padded(cell(i), widths[i], columns_[i].align);
    return trimmed(result) + "\n";
  };
  std::string result = line([&](std::size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) result += line([&](std::size_t i) { return row[i]; });
  return result;
}

std::string Table::markdown() const {
  std::string result = "|", rule = "|";
  for (const auto& column : columns_) {
    result += " " + column.title + " |";
    rule += column.align == Align::right ? "---:|" : "---|";
  }
  result += "\n" + rule + "\n";
  for (const auto& row : rows_) {
    result += "|";
    for (const auto& cell : row) result += " " + cell + " |";
    result += "\n";
  }
  return result;
}

std::string bytes_text(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} bytes", bytes);
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string digits(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 1e-3 || size >= 1e7) return fmt::format("{:.2e}", value);
  if (size >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

}  // namespace ejk::tools
