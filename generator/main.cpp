// ejk-gen: the command line. Exit 0 done, 1 --check found a difference, 2 bad input (every fault on stderr, nothing written), 128 + N after
// signal N.
#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "generator/budget_report.hpp"
#include "generator/differences.hpp"
#include "generator/files.hpp"
#include "generator/generate.hpp"
#include "generator/interrupt.hpp"
#include "generator/progress.hpp"
#include "generator/reference_page.hpp"
#include "spec/read/byte_size.hpp"
#include "spec/render/sha256.hpp"

namespace {

namespace po = boost::program_options;
using ejk::generator::Options;
using ejk::generator::UsageError;

enum class Task { generate, list, count, check, help, version };

struct Command {
  Task task = Task::generate;
  bool json = false;
  std::filesystem::path reference;  // the folder of the kernels' pages, which are made in place of sources
  Options options;
};

po::options_description described() {
  po::options_description visible("Options", 120, 80);
  visible.add_options()                                                                                      //
      ("templates", po::value<std::string>()->value_name("DIR"), "templates (default: SPECS/../templates)")  //
      ("out", po::value<std::string>()->value_name("DIR"), "where to write (default: SPECS/../generated)")   //
      ("arch", po::value<std::vector<std::string>>()->value_name("LIST"),
       "archs, comma separated: avx2,cpu:avx512,sm_90a (default: all but the SIMT emulator's)")  //
      ("select", po::value<std::string>()->value_name("WHAT"),
       "configs of each case: heuristic (default), tuned (that and the winners of specs/tuned), all, or a glob over image ids of all "
       "configs")  //
      ("within", po::value<std::string>()->value_name("PERCENT"),
       "instead of --select: the smallest set of images with which every tuned call (specs/tuned) takes at most so much longer than with "
       "its best, e.g. 5%; cases that no record speaks of keep the heuristic's image (default with --budget: 5%)")  //
      ("budget", po::value<std::string>()->value_name("SIZE"),
       "the same; if that set is larger than SIZE (sources and binaries, e.g. 50MB), the one of that size that loses least")  //
      ("sizes", po::value<std::string>()->value_name("STORE"),
       "with --budget: a store whose image.json tell the sizes of binaries; others are guessed from their sources")  //
      ("reference", po::value<std::string>()->value_name("DIR"),
       "instead of sources: the reference page of each kernel, as Markdown (docs/kernels in the repository)")  //
      ("list", "print the image ids as they are found; write nothing")                                         //
      ("count", "print how many images there are; write nothing")                                              //
      ("check", "compare what would be written with the output folder; write nothing; exit 1 if it differs")   //
      ("json", "print results as JSON")                                                                        //
      ("help", "print this")                                                                                   //
      ("version", "print the version");
  return visible;
}

std::vector<std::string> split(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const std::string& list : lists) {
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t end = std::min(list.find(',', at), list.size());
      if (end > at) names.push_back(list.substr(at, end - at));
      at = end + 1;
    }
  }
  return names;
}

// The parent's folder beside the specs: "specs" → "templates", "a/specs/" → "a/templates".
std::filesystem::path beside(std::filesystem::path specs, const char* name) {
  if (!specs.has_filename()) specs = specs.parent_path();
  return specs.parent_path() / name;
}

std::string own_hash() {
  std::string bytes;
  return ejk::generator::read_file("/proc/self/exe", bytes) ? ejk::spec::sha256_hex(bytes) : std::string();
}

// "5%" or "5": 0.05
double percent(const std::string& text) {
  double value = -1;
  const auto* end = text.data() + text.size() - text.ends_with('%');
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || !(value >= 0 && value <= 1000))
    throw UsageError(fmt::format("--within: expected a percentage from 0 to 1000 such as 5%, found '{}'", text));
  return value / 100;
}

void parse_budget(const po::variables_map& given, Options& options) {
  options.portfolio = given.count("budget") || given.count("within");
  if (given.count("sizes")) options.sizes = given["sizes"].as<std::string>();
  if (!options.sizes.empty() && !options.portfolio) throw UsageError("--sizes goes with --budget or --within");
  if (!options.sizes.empty() && !std::filesystem::is_directory(options.sizes))
    throw UsageError(fmt::format("--sizes: no folder '{}'", options.sizes.string()));
  if (options.portfolio && given.count("select")) throw UsageError("--select does not go with --budget or --within: records choose");
  if (given.count("within")) options.within = percent(given["within"].as<std::string>());
  if (!given.count("budget")) return;
  options.budget = ejk::spec::parse_byte_size(given["budget"].as<std::string>());
  if (!options.budget)
    throw UsageError(fmt::format("--budget: expected a size such as 50MB or 1GiB, found '{}'", given["budget"].as<std::string>()));
}

Command parse(int argc, char** argv) {
  po::options_description all = described();
  all.add_options()("specs", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("specs", -1);
  po::variables_map given;
  const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  try {
    po::store(po::command_line_parser(argc, argv).options(all).positional(positional).style(style).run(), given);
  } catch (const po::error& e) {
    throw UsageError(fmt::format("{}; ejk-gen --help lists the options", e.what()));
  }
  Command command;
  command.json = given.count("json") > 0;
  if (given.count("help")) command.task = Task::help;
  if (given.count("version")) command.task = Task::version;
  if (command.task != Task::generate) return command;
  for (const auto& [one, other] :
       {std::pair("list", "check"), {"list", "reference"}, {"list", "count"}, {"count", "check"}, {"count", "reference"}})
    if (given.count(one) && given.count(other)) throw UsageError(fmt::format("--{} and --{} do not go together", one, other));
  if (given.count("reference")) command.reference = given["reference"].as<std::string>();
  if (given.count("list")) command.task = Task::list;
  if (given.count("count")) command.task = Task::count;
  if (given.count("check")) command.task = Task::check;
  const auto folders = given.count("specs") ? given["specs"].as<std::vector<std::string>>() : std::vector<std::string>();
  if (folders.size() != 1)
    throw UsageError(fmt::format("expected one SPECS folder, found {}; usage: ejk-gen SPECS [options], ejk-gen --help", folders.size()));
  Options& options = command.options;
  options.specs = folders[0];
  options.templates =
      given.count("templates") ? std::filesystem::path(given["templates"].as<std::string>()) : beside(folders[0], "templates");
  options.out = given.count("out") ? std::filesystem::path(given["out"].as<std::string>()) : beside(folders[0], "generated");
  if (given.count("arch")) options.archs = split(given["arch"].as<std::vector<std::string>>());
  if (given.count("arch") && options.archs.empty()) throw UsageError("--arch: the list is empty");
  if (given.count("select")) options.select = given["select"].as<std::string>();
  parse_budget(given, options);
  if (options.select.empty()) throw UsageError("--select: expected tuned, heuristic, all or a glob over image ids");
  return command;
}

// An entry of a JSON list that is indented by one.
void print_entry(const ejk::generator::Listed& image, bool first) {
  const nlohmann::ordered_json entry = {
      {"id", image.id}, {"kernel", image.kernel}, {"variant", image.variant}, {"arch", image.arch}, {"case", image.case_name}};
  std::string text = "\n" + entry.dump(1);
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "\n ");
  fmt::print("{}{}", first ? "" : ",", text);
}

int run_list(const Command& command) {
  std::size_t images = 0;
  if (command.json) fmt::print("[");
  ejk::generator::for_each_listed(command.options, [&](const auto& image) {
    ejk::generator::check_interrupts();
    if (command.json)
      print_entry(image, images == 0);
    else
      fmt::print("{}\n", image.id);
    ++images;
  });
  if (command.json) fmt::print("{}]\n", images == 0 ? "" : "\n");
  return 0;
}

int run_count(const Command& command) {
  std::size_t images = 0;
  ejk::generator::for_each_listed(command.options, [&](const auto&) { command.options.progress(++images, 0); });
  if (command.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"images", images}}.dump());
  else
    fmt::print("{}\n", images);
  return 0;
}

int run_check(const Command& command) {
  const auto& [specs, templates] = std::tie(command.options.specs, command.options.templates);
  const auto differences = command.reference.empty() ? ejk::generator::check(command.options)
                                                     : ejk::generator::check_reference(specs, templates, command.reference);
  if (command.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"differences", differences}}.dump(1));
  } else {
    for (const std::string& line : ejk::generator::shortened(differences)) fmt::print("{}\n", line);
    fmt::print("{}\n", differences.empty() ? "up to date"
                                           : fmt::format("{} differences; ejk-gen {} writes what is new", differences.size(),
                                                         command.options.specs.string()));
  }
  return differences.empty() ? 0 : 1;
}

int run_reference(const Command& command) {
  const auto changed = ejk::generator::write_reference(command.options.specs, command.options.templates, command.reference);
  if (command.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"changed", changed}}.dump());
  else
    fmt::print("{}: {} pages changed\n", command.reference.string(), changed);
  return 0;
}

int run_generate(Command& command) {
  const auto start = std::chrono::steady_clock::now();
  command.options.program = own_hash();
  const auto report = ejk::generator::generate(command.options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (command.json) {
    nlohmann::ordered_json object = {
        {"images", report.images},         {"written", report.files.written}, {"unchanged", report.files.unchanged},
        {"removed", report.files.removed}, {"up_to_date", report.up_to_date}, {"seconds", seconds}};
    if (command.options.portfolio) object["budget"] = ejk::generator::to_json(report.budget);
    fmt::print("{}\n", object.dump());
  } else if (report.up_to_date) {
    fmt::print("{}: {} images, nothing to do ({:.2f} s)\n", command.options.out.string(), report.images, seconds);
  } else {
    fmt::print("{}: {} images; files: {} written, {} unchanged, {} removed ({:.2f} s)\n", command.options.out.string(), report.images,
               report.files.written, report.files.unchanged, report.files.removed, seconds);
    if (command.options.portfolio) ejk::generator::print(report.budget, report.images);
  }
  return 0;
}

int run(Command& command) {
  ejk::generator::note_interrupts();
  ejk::generator::Progress progress(stderr);
  command.options.progress = [&](std::size_t done, std::size_t total) {
    ejk::generator::check_interrupts();
    progress.show(done, total);
  };
  switch (command.task) {
    case Task::help:
      fmt::print("ejk-gen SPECS [options]: expands specs and templates into specialised sources.\n\n");
      std::cout << described() << "\nExit status: 0 done, 1 --check found a difference, 2 bad input.\n";
      return 0;
    case Task::version:
      fmt::print("ejk-gen {}\n", ejk::generator::version);
      return 0;
    case Task::list:
      return run_list(command);
    case Task::count:
      return run_count(command);
    case Task::check:
      return run_check(command);
    case Task::generate:
      return command.reference.empty() ? run_generate(command) : run_reference(command);
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Command command = parse(argc, argv);
    const int code = run(command);
    if (std::cout.flush() && std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    throw std::runtime_error("what was to be printed could not be written to the standard output");
  } catch (const UsageError& e) {
    fmt::print(stderr, "ejk-gen: {}\n", e.what());
  } catch (const ejk::generator::Interrupted& e) {
    fmt::print(stderr, "ejk-gen: {}\n", e.what());
    return 128 + e.signal();
  } catch (const ejk::spec::SpecError& e) {
    fmt::print(stderr, "{}\n", e.what());
  } catch (const std::exception& e) {
    fmt::print(stderr, "ejk-gen: {}\n", e.what());
  }
  return 2;
}
