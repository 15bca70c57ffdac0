// The page of a tuning run: one file, plots as SVG drawn here, readable in light and in dark.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "command_line/table.hpp"
#include "tune/stopwatch.hpp"
#include "tune/tune_report.hpp"

namespace ejk::tools {
namespace {

constexpr const char* style = R"(
:root { color-scheme: light dark; --fg: #1d2433; --dim: #667085; --line: #d5d9e2; --bg: #ffffff; --card: #f6f7f9;
  --base: #8a94a6; --best: #0f8a5f; --bar: #4c7dd0; --bad: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --fg: #e6e9ef; --dim: #98a2b3; --line: #384152; --bg: #12161f; --card: #1a202c;
  --base: #7b8698; --best: #34c28c; --bar: #6d9bea; --bad: #f08a4b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg); max-width: 1120px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: .2em; } h2 { font-size: 1.15em; margin: 2em 0 .4em; } p { margin: .3em 0; }
.dim { color: var(--dim); } code { font-size: .9em; } table { border-collapse: collapse; font-size: .9em; display: block; overflow-x: auto; }
td, th { padding: .25em .8em .25em 0; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } .won { color: var(--best); font-weight: 600; }
.bad { color: var(--bad); } section { background: var(--card); border-radius: 8px; padding: .6em 1.2em 1em; margin: 1.2em 0; }
section h2 { margin-top: .4em; } .plots { display: flex; flex-wrap: wrap; gap: 1em; } .big { font-size: 1.3em; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--fg); font: 12px system-ui, sans-serif; } svg .t { fill: var(--dim); font-size: 11px; }
svg .axis { stroke: var(--line); fill: none; } svg .whisker { stroke: var(--fg); opacity: .7; } svg .step { stroke: var(--best); stroke-width: 2; fill: none; }
svg .roof { stroke: var(--dim); stroke-width: 1.5; fill: none; } details { margin-top: .5em; } summary { cursor: pointer; color: var(--dim); }
)";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) switch (letter) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(letter) < 32 && letter != '\n' ? ' ' : letter;
    }
  return result;
}

std::string shortened(const std::string& text, std::size_t most) { return text.size() <= most ? text : text.substr(0, most - 1) + "…"; }

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

// ---- times of the configs ----

struct Bar {
  std::string label, colour;
  double value, low, high;  // us
};

// Sorted; a trial's time is its ratio times the default's, so that the machine's moods are out of it.
std::vector<Bar> bars_of(const TuningOutcome& outcome) {
  const auto& record = outcome.record;
  std::vector<Bar> bars;
  for (const auto& trial : outcome.trials) {
    const bool is_default = trial.config == record.baseline;
    if (trial.state == Trial::State::rejected || trial.state == Trial::State::pruned || (trial.ratios.empty() && !is_default)) continue;
    const char* colour = trial.config == record.config ? "var(--best)" : is_default ? "var(--base)" : "var(--bar)";
    Bar bar{config_words(trial.config, {}), colour, record.baseline_us, record.baseline_us, record.baseline_us};
    if (is_default && !trial.samples_us.empty()) bar.low = quantile(trial.samples_us, 0.25), bar.high = quantile(trial.samples_us, 0.75);
    if (!is_default) {
      bar.value *= median(trial.ratios);
      bar.low *= quantile(trial.ratios, 0.25);
      bar.high *= quantile(trial.ratios, 0.75);
    }
    bars.push_back(std::move(bar));
  }
  std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.value < b.value; });
  return bars;
}

std::string bar_plot(const TuningOutcome& outcome) {
  constexpr std::size_t most = 40;
  constexpr double row = 20, label = 320, width = 280, right = 80, most_times = 3;
  auto bars = bars_of(outcome);
  const auto left_out = bars.size() > most ? bars.size() - most : 0;
  if (left_out) bars.resize(most);
  double longest = 0;
  for (const auto& bar : bars) longest = std::max({longest, bar.value, bar.high});
  if (longest <= 0) return "";
  longest = std::min(longest, std::max(most_times * bars.front().value, outcome.record.baseline_us));  // longer bars are cut off
  const double height = row * static_cast<double>(bars.size()) + 22;
  std::string svg =
      fmt::format(R"(<svg viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img" aria-label="time of each config">)",
                  label + width + right, height);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const auto& bar = bars[i];
    const double y = row * static_cast<double>(i);
    const auto x = [&](double value) { return label + width * std::min(value / longest, 1.0); };
    const bool cut = bar.value > longest;
    svg += fmt::format(R"(<text x="{:.0f}" y="{:.1f}" text-anchor="end">{}</text>)", label - 8, y + 14, escaped(shortened(bar.label, 46)));
    svg += fmt::format(R"(<rect x="{:.0f}" y="{:.1f}" width="{:.1f}" height="13" rx="2" style="fill:{}"><title>{}</title></rect>)", label,
                       y + 3, std::max(x(bar.value) - label, 1.0), bar.colour, escaped(fmt::format("{}: {:.4g} us", bar.label, bar.value)));
    svg += fmt::format(R"(<path class="whisker" d="M{0:.1f} {1:.1f}V{2:.1f}M{0:.1f} {3:.1f}H{4:.1f}M{4:.1f} {1:.1f}V{2:.1f}"/>)",
                       x(bar.low), y + 6, y + 13, y + 9.5, x(bar.high));
    svg += fmt::format(R"(<text class="t" x="{:.1f}" y="{:.1f}">{}</text>)", x(std::max(bar.value, bar.high)) + 6, y + 14,
                       (cut ? "› " : "") + seconds_text(bar.value * 1e-6));
  }
  if (left_out) svg += fmt::format(R"(<text class="t" x="{:.0f}" y="{:.1f}">and {} slower ones</text>)", label, height - 6, left_out);
  return svg + "</svg>\n";
}

// ---- best so far ----

std::string progress_plot(const TuningOutcome& outcome) {
  constexpr double width = 260, height = 150, left = 48, top = 14, bottom = 30;
  double lowest = 1;
  for (const auto& step : outcome.progress) lowest = std::min(lowest, step.ratio);
  lowest = std::min(lowest, outcome.ratio) - 0.02;
  const double seconds = std::max(outcome.seconds, 1e-3);
  const auto x = [&](double at) { return left + width * std::min(at, seconds) / seconds; };
  const auto y = [&](double ratio) { return top + height * (1.02 - ratio) / (1.02 - lowest); };
  std::string svg =
      fmt::format(R"(<svg viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img" aria-label="best so far">)",
                  left + width + 20, top + height + bottom);
  svg += fmt::format(
      R"(<path class="axis" d="M{0:.0f} {1:.0f}V{2:.0f}H{3:.0f}"/><path class="axis" stroke-dasharray="4 4" d="M{0:.0f} {4:.1f}H{3:.0f}"/>)",
      left, top, top + height, left + width, y(1));
  svg += fmt::format(R"(<text class="t" x="{:.0f}" y="{:.1f}" text-anchor="end">1.00</text>)", left - 6, y(1) + 4);
  svg += fmt::format(R"(<text class="t" x="{:.0f}" y="{:.1f}" text-anchor="end">{:.2f}</text>)", left - 6, y(lowest + 0.02) + 4,
                     lowest + 0.02);
  svg += fmt::format(R"(<text class="t" x="{:.0f}" y="{:.0f}">best time over the default's, by seconds of search ({:.1f} s)</text>)", left,
                     top + height + 18, outcome.seconds);
  std::string path;
  for (const auto& step : outcome.progress)
    path += path.empty() ? fmt::format("M{:.1f} {:.1f}", x(step.seconds), y(step.ratio))
                         : fmt::format("H{:.1f}V{:.1f}", x(step.seconds), y(step.ratio));
  if (!path.empty()) svg += fmt::format(R"(<path class="step" d="{}H{:.1f}"/>)", path, x(seconds));
  return svg + "</svg>\n";
}

// ---- roofline ----

// Without a peak of arithmetic, bytes a second against the bandwidth.
std::string roofline_plot(const TuneReport& report) {
  constexpr double width = 620, height = 300, left = 64, top = 14, bottom = 44;
  struct Point {
    double intensity, before, after;
    std::string name;
  };
  std::vector<Point> points;
  for (const auto& one : report.cases) {
    const auto& [record, call] = std::pair(one.outcome.record, one.outcome.call);
    if (one.error.empty() && call.flops > 0 && call.bytes > 0 && record.baseline_us > 0)
      points.push_back({call.flops / call.bytes, call.flops / record.baseline_us * 1e6,
                        call.flops / (record.baseline_us * one.outcome.ratio) * 1e6, one.name});
  }
  if (points.empty() || report.peak_bytes <= 0) return "";
  double low_x = 1e30, high_x = 0, low_y = 1e30, high_y = report.peak_flops;
  for (const auto& point : points) {
    low_x = std::min(low_x, point.intensity), high_x = std::max(high_x, point.intensity);
    low_y = std::min({low_y, point.before, point.after}), high_y = std::max({high_y, point.before, point.after});
  }
  if (report.peak_flops > 0) {  // the knee is in sight
    high_x = std::max(high_x, report.peak_flops / report.peak_bytes);
    low_x = std::min(low_x, report.peak_flops / report.peak_bytes);
  }
  low_x /= 2, high_x *= 3, low_y /= 2;
  high_y = 2 * std::max(high_y, report.peak_flops > 0 ? 0 : report.peak_bytes * high_x / 3);
  const auto x = [&](double v) { return left + width * std::log(v / low_x) / std::log(high_x / low_x); };
  const auto y = [&](double v) { return top + height * (1 - std::log(v / low_y) / std::log(high_y / low_y)); };
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" role="img" aria-label="roofline">)",
                                left + width + 20, top + height + bottom);
  for (double v = std::pow(10, std::ceil(std::log10(low_y))); v < high_y; v *= 10)
    svg += fmt::format(
        R"(<path class="axis" d="M{0:.0f} {1:.1f}H{2:.0f}"/><text class="t" x="{3:.0f}" y="{4:.1f}" text-anchor="end">{5:g}</text>)", left,
        y(v), left + width, left - 6, y(v) + 4, v / 1e9);
  for (double v = std::pow(10, std::ceil(std::log10(low_x))); v < high_x; v *= 10)
    svg += fmt::format(
        R"(<path class="axis" d="M{0:.1f} {1:.0f}V{2:.0f}"/><text class="t" x="{0:.1f}" y="{3:.0f}" text-anchor="middle">{4:g}</text>)",
        x(v), top, top + height, top + height + 16, v);
  const double knee = report.peak_flops > 0 ? std::clamp(report.peak_flops / report.peak_bytes, low_x, high_x) : high_x;
  const double start = std::max(low_x, low_y / report.peak_bytes);
  svg += fmt::format(R"(<path class="roof" d="M{:.1f} {:.1f}L{:.1f} {:.1f}H{:.1f}"/>)", x(start), y(start * report.peak_bytes), x(knee),
                     y(std::min(knee * report.peak_bytes, high_y)), x(high_x));
  for (const auto& point : points) {
    const auto title =
        escaped(fmt::format("{}: {:.4g} GFLOP/s with the heuristic, {:.4g} tuned", point.name, point.before / 1e9, point.after / 1e9));
    svg += fmt::format(
        R"svg(<circle cx="{0:.1f}" cy="{1:.1f}" r="3.5" style="fill:var(--base)"/><circle cx="{0:.1f}" cy="{2:.1f}" r="4" style="fill:var(--best)"><title>{3}</title></circle>)svg",
        x(point.intensity), y(point.before), y(point.after), title);
  }
  svg += fmt::format(
      R"(<text class="t" x="{:.0f}" y="{:.0f}">FLOP a byte; upwards GFLOP/s. Grey: heuristic, green: tuned; line: this machine's measured peaks</text>)",
      left, top + height + 36);
  return svg + "</svg>\n";
}

// ---- the page ----

std::string summary_row(const TunedCase& one, std::size_t index) {
  if (!one.error.empty())
    return fmt::format("<tr><td>{}</td><td colspan=\"7\" class=\"bad\">{}</td></tr>\n", escaped(one.name), escaped(one.error));
  const auto& record = one.outcome.record;
  const bool same = record.config == record.baseline;
  return fmt::format(
      "<tr><td><a href=\"#c{}\">{}</a></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n{}\">{:.3f}</td><td "
      "class=\"n\">{:.1f}%</td>"
      "<td class=\"n\">{} of {}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
      index, escaped(one.name), seconds_text(record.baseline_us * 1e-6), seconds_text(record.median_us * 1e-6), same ? "" : " won",
      speed_up(one), 100 * record.noise, record.measured, one.outcome.space, record.rejected,
      same ? "the heuristic's" : escaped(config_words(record.config, record.baseline)));
}

std::string rejected_list(const TuningOutcome& outcome) {
  std::string rows;
  std::size_t count = 0;
  for (const auto& trial : outcome.trials) {
    if (trial.state == Trial::State::waiting || trial.state == Trial::State::measured) continue;
    rows += fmt::format("<tr><td>{}</td><td class=\"{}\">{}</td><td>{}</td></tr>\n", escaped(config_words(trial.config, {})),
                        trial.state == Trial::State::rejected ? "bad" : "dim", name_of(trial.state), escaped(shortened(trial.reason, 300)));
    ++count;
  }
  if (!count) return "";
  return fmt::format("<details{}><summary>{} configs rejected, dropped or pruned, and why</summary><table>\n{}</table></details>\n",
                     outcome.record.rejected ? " open" : "", count, rows);
}

std::string section_of(const TunedCase& one, std::size_t index) {
  const auto& [record, call] = std::pair(one.outcome.record, one.outcome.call);
  const bool same = record.config == record.baseline;
  auto text = fmt::format("<section id=\"c{}\"><h2>{}</h2>\n", index, escaped(one.name));
  text += fmt::format("<p><code>{}</code> {}</p>\n", escaped(ejk::to_json(record.config)),
                      same ? "stays: nothing beats it beyond the noise"
                           : fmt::format("takes {:.3f} of the heuristic's time (noise {:.1f}%)", one.outcome.ratio, 100 * record.noise));
  text += fmt::format("<p class=\"dim\">{}; checked against {}, worst error {:.2g} of the tolerance; caches {}; {}.</p>\n",
                      escaped(counted(one)), escaped(record.checked_against), record.residual, escaped(call.memory),
                      escaped(one.outcome.stopped));
  return text + "<div class=\"plots\">\n" + bar_plot(one.outcome) + progress_plot(one.outcome) + "</div>\n" + rejected_list(one.outcome) +
         "</section>\n";
}

}  // namespace

std::string html(const TuneReport& report) {
  auto page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/>"
      "<title>ejk tune {0}</title><style>{1}</style></head><body>\n<h1>{0}, tuned on {2}</h1>\n",
      escaped(report.kernel), style, escaped(report.device));
  std::string machine;
  for (const auto& one : report.cases)
    if (machine.empty()) machine = one.outcome.record.machine;
  page += fmt::format("<p class=\"dim\"><code>{}</code>, ejk {}, {}, {:.0f} s. {}</p>\n", escaped(report.command), EJK_VERSION,
                      escaped(report.date), report.seconds, escaped(machine));
  page += fmt::format("<p class=\"big\">Geometric mean: <b>{:.3f}</b> times the heuristic's speed.</p>\n", mean_speed_up(report));
  page +=
      "<table><tr><th>case</th><th class=\"n\">heuristic</th><th class=\"n\">tuned</th><th class=\"n\">faster by</th><th "
      "class=\"n\">noise</th>"
      "<th class=\"n\">configs timed</th><th class=\"n\">rejected</th><th>config</th></tr>\n";
  for (std::size_t i = 0; i < report.cases.size(); ++i) page += summary_row(report.cases[i], i);
  page += "</table>\n" + roofline_plot(report);
  for (std::size_t i = 0; i < report.cases.size(); ++i)
    if (report.cases[i].error.empty()) page += section_of(report.cases[i], i);
  return page + "</body></html>\n";
}

}  // namespace ejk::tools
