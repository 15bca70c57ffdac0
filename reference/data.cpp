// Random inputs by fill and type.
#include "reference/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include "reference/element.hpp"
#include "reference/paged_data.hpp"

namespace ejk::reference {
namespace {

constexpr std::int64_t period = 4194301;  // a prime, so that no row of a usual size meets itself again

// Random numbers are slow to make: a large tensor repeats its first ones.
void fill_large(HostTensor& tensor, double deviation, Rng& rng) {
  const auto size = static_cast<std::size_t>(size_of(tensor.type()));
  auto* data = static_cast<std::byte*>(tensor.data());
  for (std::int64_t i = 0; i < period; ++i)
    store_element(tensor.type(), data + static_cast<std::size_t>(i) * size, deviation * rng.normal());
  for (std::int64_t done = period; done < tensor.elements(); done += period)
    std::memcpy(data + static_cast<std::size_t>(done) * size, data,
                static_cast<std::size_t>(std::min(period, tensor.elements() - done)) * size);
}

void fill_boolean(HostTensor& tensor, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  const std::int64_t row = tensor.shape().empty() ? 1 : tensor.shape().back();
  bool row_is_false = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<std::int64_t>(i) % row == 0) row_is_false = rng.chance(0.1);
    values[i] = !row_is_false && rng.chance(0.8);
  }
  tensor.assign(values);
}

// Scores, some of which hide what they belong to, and now and then a whole innermost row.
void fill_hidden(HostTensor& tensor, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  const std::int64_t row = tensor.shape().empty() ? 1 : tensor.shape().back();
  bool row_is_hidden = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<std::int64_t>(i) % row == 0) row_is_hidden = rng.chance(0.1);
    values[i] = row_is_hidden || rng.chance(0.2) ? -std::numeric_limits<double>::infinity() : rng.normal();
  }
  tensor.assign(values);
}

void fill_lowest(HostTensor& tensor, Rng& rng) {
  if (tensor.type() == DType::f16) return fill_normal(tensor, 1, rng);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  const std::int64_t row = tensor.shape().empty() ? 1 : tensor.shape().back();
  bool row_is_low = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<std::int64_t>(i) % row == 0) row_is_low = rng.chance(0.15);
    const bool other = rng.chance(row_is_low ? 0.2 : 0.8);
    values[i] = !other ? lowest_of(tensor.type()) : row_is_low ? -std::numeric_limits<double>::infinity() : rng.normal();
  }
  tensor.assign(values);
}

// One row of segment ids. The bounds are fractions, so rows of other lengths made from the same generator state meet the same ids.
struct Run {
  double end;
  std::int64_t id;
};

std::vector<Run> segment_runs(Rng& rng) {
  std::vector<Run> runs;
  double end = 0;
  for (std::int64_t id = 0; end < 1; ++id) {
    end += 0.08 + 0.5 * rng.uniform();
    runs.push_back({std::min(end, 1.0), rng.chance(0.15) ? rng.chance(0.7) ? -1 : INT32_MIN : id});
  }
  return runs;
}

// Logs of what a step leaves of a state: nothing, almost nothing, most, almost all, all.
void fill_gates(HostTensor& tensor, Rng& rng) {
  static constexpr double strong[] = {-30, -80, -std::numeric_limits<double>::infinity()};
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (double& value : values) {
    const double kind = rng.uniform();
    value = kind < 0.2 ? 0 : kind < 0.5 ? -1e-3 : kind < 0.85 ? -std::abs(rng.normal()) / 4 : rng.pick(strong);
  }
  tensor.assign(values);
}

// Gates of which something is left after hundreds of tokens.
void fill_mild_gates(HostTensor& tensor, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (double& value : values) value = rng.chance(0.2) ? 0 : -0.02 * std::abs(rng.normal());
  tensor.assign(values);
}

// Gates of which much is left after one token, but nothing after a hundred.
void fill_strong_gates(HostTensor& tensor, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (double& value : values) value = -1.6 * rng.uniform();
  tensor.assign(values);
}

void fill_betas(HostTensor& tensor, Rng& rng) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (double& value : values) value = rng.chance(0.5) ? static_cast<double>(rng.between(0, 2)) : 2 * rng.uniform();
  tensor.assign(values);
}

void fill_segments(HostTensor& tensor, std::uint64_t seed) {
  const std::int64_t length = tensor.shape().empty() ? 1 : tensor.shape().back();
  std::vector<double> values;
  const std::int64_t rows = length > 0 ? tensor.elements() / length : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    Rng rng = Rng::stream(seed, fmt::format("segments {}", row));  // the same for every tensor of this fill
    const std::vector<Run> runs = segment_runs(rng);
    std::size_t run = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      while (run + 1 < runs.size() && static_cast<double>(i) >= runs[run].end * static_cast<double>(length)) ++run;
      values.push_back(static_cast<double>(runs[run].id));
    }
  }
  tensor.assign(values);
}

void fill_offsets(HostTensor& tensor, std::int64_t tokens, Rng& rng) {
  const std::int64_t count = tensor.elements();
  if (tensor.shape().size() != 1 || count < 1)
    throw std::invalid_argument(fmt::format("{}: offsets need one dimension of 1 or more elements", tensor.name()));
  // Sometimes tokens lie past the last sequence: any number in small calls, few in large ones, whose cost is counted by their shapes.
  const std::int64_t end = rng.chance(0.25) ? rng.between(tokens > 1024 ? tokens - 8 : 0, tokens) : tokens;
  std::vector<double> values{0};
  for (std::int64_t i = 1; i + 1 < count; ++i)
    values.push_back(rng.chance(0.2) ? values[static_cast<std::size_t>(rng.between(0, i - 1))] : static_cast<double>(rng.between(0, end)));
  if (count > 1) values.push_back(static_cast<double>(end));
  std::sort(values.begin(), values.end());
  tensor.assign(values);
}

// `total` rows for `count` groups, in proportion to `weights`; the last takes what rounding leaves.
std::vector<double> shared_out(std::int64_t total, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> sizes;
  std::int64_t left = total;
  for (const double weight : weights) {
    sizes.push_back(std::floor(static_cast<double>(total) * (sum > 0 ? weight / sum : 0.0)));
    left -= static_cast<std::int64_t>(sizes.back());
  }
  if (!sizes.empty()) sizes.back() += static_cast<double>(left);
  return sizes;
}

std::vector<double> equal_sizes(std::int64_t count, std::int64_t rows) {
  std::vector<double> sizes;
  for (std::int64_t i = 0; i < count; ++i) sizes.push_back(static_cast<double>(rows * (i + 1) / count - rows * i / count));
  return sizes;
}

std::vector<double> random_sizes(std::int64_t count, std::int64_t rows, Rng& rng) {
  std::vector<double> weights;
  for (std::int64_t i = 0; i < count; ++i) weights.push_back(0.1 + rng.uniform());
  return shared_out(rows, weights);
}

std::vector<double> one_size(std::int64_t count, std::int64_t rows, Rng& rng) {
  std::vector<double> sizes(static_cast<std::size_t>(count), 0.0);
  if (count > 0) sizes[static_cast<std::size_t>(rng.between(0, count - 1))] = static_cast<double>(rows);
  return sizes;
}

// Sizes that kernels trip over; their sum may be anything.
std::vector<double> nasty_sizes(std::int64_t count, std::int64_t rows, Rng& rng) {
  const double kind = rng.uniform();
  if (kind < 0.15) return one_size(count, rows, rng);
  if (kind < 0.3) return equal_sizes(count, rows);
  if (kind < 0.5) return random_sizes(count, rows, rng);
  std::vector<double> weights;
  for (std::int64_t i = 0; i < count; ++i) weights.push_back(rng.chance(0.3) ? 0 : std::pow(rng.uniform(), 3));
  std::vector<double> sizes = shared_out(kind < 0.7 ? rows : rng.between(0, rows + rows / 2 + 2), weights);
  rng.shuffle(sizes);
  return sizes;
}

// fill: "sizes M", maybe with a word more.
void fill_sizes(HostTensor& tensor, const std::string& word, std::int64_t rows, Rng& rng) {
  const std::int64_t count = tensor.elements();
  if (tensor.shape().size() != 1) throw std::invalid_argument(fmt::format("{}: sizes need one dimension", tensor.name()));
  if (word == "equal") return tensor.assign(equal_sizes(count, rows));
  if (word == "one") return tensor.assign(one_size(count, rows, rng));
  if (word == "random" || (word.empty() && rows > 1024)) return tensor.assign(random_sizes(count, rows, rng));
  if (word.empty()) return tensor.assign(nasty_sizes(count, rows, rng));
  throw std::invalid_argument(fmt::format("{}: unknown sizes '{}'; known are 'equal', 'random' and 'one'", tensor.name(), word));
}

void fill_counting(HostTensor& tensor) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, static_cast<double>(size_of(tensor.type()) == 1 ? i % 128 : i));
}

// fill: "blocks P" or "blocks P causal".
void fill_blocks(HostTensor& tensor, const std::string& share, bool causal, Rng& rng) {
  const std::vector<std::int64_t>& shape = tensor.shape();
  char* end = nullptr;
  const double probability = std::strtod(share.c_str(), &end);
  if (shape.size() < 2 || share.empty() || *end != 0 || probability < 0 || probability > 1)
    throw std::invalid_argument(fmt::format("{}: blocks need two dimensions and a probability; found '{}'", tensor.name(), share));
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  std::vector<bool> hidden(static_cast<std::size_t>(columns), false);
  double chance = probability;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / columns % rows, column = static_cast<std::int64_t>(i) % columns;
    const std::int64_t diagonal = (row + 1) * columns / rows - 1;
    if (causal) {
      values[i] = column == diagonal || (column < diagonal && rng.chance(probability));
      continue;
    }
    if (row == 0 && column == 0) std::generate(hidden.begin(), hidden.end(), [&] { return rng.chance(0.1); });
    if (column == 0) chance = rng.chance(0.8) ? probability : rng.chance(0.5) ? 0 : 1;
    values[i] = !hidden[static_cast<std::size_t>(column)] && rng.chance(chance);
  }
  tensor.assign(values);
}

// Each innermost row is normal numbers times the one size or the other.
void fill_rows(HostTensor& tensor, double size, double other_size, Rng& rng) {
  const auto columns = tensor.shape().empty() ? 1 : tensor.shape().back();
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  double own = size;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % static_cast<std::size_t>(columns) == 0) own = rng.chance(0.5) ? size : other_size;
    values[i] = own * rng.normal();
  }
  tensor.assign(values);
}

// "offsets T" as {"offsets", "T", ""}, "sizes M equal" as {"sizes", "M", "equal"}.
struct FillWords {
  std::string kind, dim, word;
};

FillWords parse_fill(const std::string& fill) {
  FillWords words;
  std::istringstream(fill) >> words.kind >> words.dim >> words.word;
  return words;
}

std::int64_t dim_named(const HostTensor& tensor, const std::string& dim, const std::map<std::string, spec::Value>& dims) {
  const auto found = dims.find(dim);
  const std::int64_t* size = found == dims.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  if (!size) throw std::invalid_argument(fmt::format("{}: its fill needs the dim {}, which the case does not give", tensor.name(), dim));
  return *size;
}

}  // namespace

double lowest_of(DType type) { return type == DType::bf16 ? -0x1.fep127 : -0x1.fffffep127; }

void fill_normal(HostTensor& tensor, double deviation, Rng& rng) {
  if (tensor.elements() > period && tensor.contiguous()) return fill_large(tensor, deviation, rng);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (double& value : values) value = deviation * rng.normal();
  tensor.assign(values);
}

void fill_input(HostTensor& tensor, const std::string& fill, const std::map<std::string, spec::Value>& dims, std::uint64_t seed) {
  Rng rng = Rng::stream(seed, tensor.name());
  if (fill == "segments") return fill_segments(tensor, seed);
  if (fill == "hidden") return fill_hidden(tensor, rng);
  if (fill == "lowest") return fill_lowest(tensor, rng);
  if (fill == "gates") return fill_gates(tensor, rng);
  if (fill == "mild gates") return fill_mild_gates(tensor, rng);
  if (fill == "strong gates") return fill_strong_gates(tensor, rng);
  if (fill == "betas") return fill_betas(tensor, rng);
  const auto [kind, dim, word] = parse_fill(fill);
  if (kind == "offsets" && word.empty()) return fill_offsets(tensor, dim_named(tensor, dim, dims), rng);
  if (kind == "blocks") return fill_blocks(tensor, dim, word == "causal", rng);
  if (kind == "rows") return fill_rows(tensor, std::stod(dim), std::stod(word), rng);
  if (kind == "sizes") return fill_sizes(tensor, word, dim_named(tensor, dim, dims), rng);
  if (fill_lengths(tensor, fill, dims, rng)) return;
  if (!fill.empty())
    throw std::invalid_argument(
        fmt::format("{}: unknown fill '{}'; known are 'segments', 'hidden', 'lowest', 'gates', 'mild gates', 'strong gates', 'betas', "
                    "'rows X Y', 'offsets DIM', "
                    "'sizes DIM [equal|random|one]', 'blocks P [causal]', 'all X', 'lengths LOW to HIGH', 'each COUNT*X ...', 'starts "
                    "COUNT*X ...', 'scales', "
                    "'contexts STARTS MOST', 'pages LENGTHS PER POOL', 'paged TABLE LENGTHS PER' and 'between STARTS ENDS'",
                    tensor.name(), fill));
  if (is_floating(tensor.type())) return fill_normal(tensor, 1, rng);
  if (tensor.type() == DType::boolean) return fill_boolean(tensor, rng);
  fill_counting(tensor);
}

bool is_related(const std::string& fill) {
  return fill.starts_with("contexts ") || fill.starts_with("pages ") || fill.starts_with("paged ") || fill.starts_with("between ");
}

bool is_host_data(const std::string& fill) { return fill.starts_with("offsets ") || fill.starts_with("sizes "); }

}  // namespace ejk::reference
