// The spec model: what one specs/<kernel>.json says, after loading. Plain data; loader.hpp makes it, check.hpp judges it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ejk/tensor.hpp"
#include "spec/check/limits.hpp"
#include "spec/expression/expression.hpp"
#include "spec/expression/value.hpp"
#include "spec/read/origins.hpp"

namespace ejk::spec {

// ---- the contract ----

// One entry of a shape: "B" (binds a dim), "B|1" (that, or 1: broadcast), "C..." (any number of dimensions whose product is C, also none;
// once a shape, at any place), or an expression over other dims ("N + 1"; NAME + INTEGER also binds NAME).
struct Extent {
  enum class Kind { dim, dim_or_one, rest, expression };
  Kind kind = Kind::dim;
  std::string dim;        // for dim, dim_or_one, rest, and an expression that binds
  std::int64_t plus = 0;  // for an expression that binds: NAME + plus
  Expression expression;  // for expression
  std::string text;       // as written
};

// One way to shape a tensor. In JSON, `shape` is a list of extents, or {"form": list} where forms differ ("batched|chunked": list serves
// two), or {"any": [list, list]} where several ranks are legal; the first alternative whose rank fits is taken. {"same_as": "x"} in place
// of a list has the alternatives of x, and in a call the very sizes of x.
struct Shape {
  std::string form;  // empty: every form
  std::vector<Extent> extents;
  std::string same_as;  // the tensor whose shape it is; empty: none's

  bool fits(std::size_t rank) const;
  bool has_rest() const { return rest() < extents.size(); }
  std::size_t rest() const;  // the index of its "C..."; without one, the number of extents
  // Of a tensor of that rank, which it fits: the dimension (of a rest, the first) that an extent stands for, and the extent of a dimension.
  std::size_t dimension_of(std::size_t extent, std::size_t rank) const;
  const Extent& extent_of(std::size_t dimension, std::size_t rank) const;
};

struct TensorSpec {
  std::string name, doc;
  std::string type;           // a type variable ("T") or an element type ("i32")
  std::vector<Shape> shapes;  // alternatives; a form with no shape refuses the tensor
  bool optional = false;
  bool output = false;
  std::string updated_as;     // inputs: the output that is this memory after the call (Output::updates); empty: the input is only read
  bool for_gradient = false;  // outputs: made only where a gradient will be taken ("for": "gradient"); such an output is optional
  std::string fill;           // inputs: how tests and benchmarks make data (see reference/data.hpp); empty: by type
  Expression matters;         // inputs: where the result depends on its data; empty: wherever it is given (check_use.hpp)
  Expression precision;       // outputs: an element type; no better a result is promised than its tolerance; empty: the output's own

  bool written() const { return output || !updated_as.empty(); }
};

// A name of `outputs`, in the spec's order: a tensor of its own, or the memory of an input that the call updates ("updates": "kv_pages").
// Expressions and launches speak of updated memory by the input's name, which may be the output's name too.
struct Output {
  std::string name, doc;
  std::string updates;  // the input; empty: a tensor of its own

  const std::string& tensor() const { return updates.empty() ? name : updates; }
};

enum class AttributeType { boolean, integer, floating, string };

struct Attribute {
  std::string name, doc;
  AttributeType type = AttributeType::boolean;
  Expression fallback;  // "default" in JSON: a literal or an expression over dims; empty with optional: absent
  bool optional = false;
  bool varies = false;               // differs from call to call (seeds, scales): never part of a key, so no supports, specialize, valid,
                                     // heuristic, grid or workspace may use it, and a launch takes it only as a bare name
  Expression matters;                // as a tensor's: where variants must be told the value (check_use.hpp)
  std::vector<std::string> choices;  // strings only
};

// One rule of legal input. `message` is text with ${expression}s.
struct Requirement {
  Expression that;
  std::string message;
  std::vector<std::string> reads;  // host tensors whose data the rule looks at (first, last, outside): checked on every call
};

struct Form {
  std::string name, doc;
  Expression when;  // over given(...) and attributes; the first form that holds is the call's
};

// In JSON "name": "doc", or "name": {"doc": ..., "value": expression} for a dim that follows from others (or from host data) where no
// shape binds it: {"G": {"doc": "query heads a kv head", "value": "Hq / Hkv"}}.
struct Dim {
  std::string name, doc;
  Expression value;
};

// ---- how to compute it ----

struct ConfigParameter {
  std::string name, doc;
  std::string label;  // its letters in image ids; by default the name
  std::vector<Value> values;
};

struct Named {
  std::string name;
  Expression expression;
};

// A name that a spec has for all its variants ("let" of the spec). In JSON "name": expression, or "name": [clauses] that must all hold. A
// variant that uses it evaluates it, with the variant's own names; where it uses none of them, it has a value without a config, too.
struct SharedLet : Named {
  std::vector<Expression> clauses;  // the expression's, or it alone
};

struct HeuristicRule {
  Expression condition;  // empty: always
  std::vector<Named> use;
};

struct WorkspaceSpec {
  std::string name, doc;
  DType type = DType::f32;
  std::vector<Expression> shape;
  Expression zero;  // whether its bytes are 0 when the first launch begins; empty: they are undefined
};

// A tensor or workspace that a tensor map may be of, and when it is.
struct MapChoice {
  Expression condition;  // "if"; empty, in the last one: otherwise
  std::string tensor;
};

// A launch argument: a tensor or workspace (passed as a pointer, null when not given), a value expression (int64, float, bool),
// `view(x)` (the whole strided view), a tensor map, `step` (int64: which of a repeated launch's turns it is, from 0 on), or
// `grid_barrier` (of a cooperative launch: templates/device/tile/grid_barrier.h).
struct Argument {
  enum class Kind { pointer, value, view, tensor_map, step, grid_barrier };
  Kind kind = Kind::value;
  std::string name;             // the tensor's, or for a value the name or "a<index>" if not a bare name
  Expression expression;        // for value
  std::vector<Expression> box;  // for tensor_map
  std::int64_t swizzle = 0;
  std::vector<MapChoice> choices;      // for tensor_map: the first whose condition holds is mapped, and `name` is the first one's
  std::string parameter_name() const;  // in the rendered source: `name`, "<name>_view" or "<name>_map"
};

struct Launch {
  std::string entry;
  Expression condition;           // "if"; empty: always
  std::vector<Expression> grid;   // 1 to 3
  std::vector<Expression> block;  // GPU: 1 to 3; CPU: empty
  Expression shared;              // bytes: dynamic shared memory; on the CPU scratch of the worker, 64-byte aligned
  std::vector<Expression> cluster;
  Expression repeat;         // launched so many times, one after the other; empty: once
  std::int64_t round = 0;    // launches that repeat in turn ("in_turn"), A B A B, have the same number
  bool cooperative = false;  // all of its blocks, or work items, are there at once, and may wait for each other
  bool overlaps = false;     // may start before the launch before it has ended: the template waits for it (device/tile/launch_order.h)
  std::vector<Argument> arguments;
};

// When calls of this variant may be folded into one along the spec's batch dim: every call must meet the condition, folded or alone, and
// the expressions must have the same values in both. Then a call's part of the folded result is bit for bit what it is alone.
struct Fold {
  Expression condition;  // "if"; empty: always
  std::vector<Expression> same;
};

struct Variant {
  std::string name, doc;
  std::string like;                // the variant whose parts it has where it says nothing else; it has them already (like.hpp)
  std::vector<std::string> archs;  // "cpu:avx2", "cuda:sm_80+" (that arch and all that extend it)
  std::int64_t priority = 0;
  std::string template_file;  // below templates/
  std::vector<Expression> supports;
  bool supports_is_list = false;  // in JSON: a list of clauses, or one clause alone
  std::vector<Named> specialize;
  std::vector<ConfigParameter> config;
  std::vector<Named> let;
  std::vector<Expression> valid;
  std::vector<HeuristicRule> heuristic;
  std::vector<WorkspaceSpec> workspace;
  std::vector<Launch> launches;
  std::optional<Fold> fold;        // none: its calls are never folded
  std::vector<std::string> flags;  // added to the arch's compile flags
  Resources limits;                // `ejk build` refuses an image above one: {"spill_bytes": 0}
  std::string pointer;             // "/variants/0"
};

// A named call: benchmark, test, prebuilt image. In JSON besides name, doc, given and fill: a value, or a list of values, for any dim, type
// variable and attribute. Lists expand to one Case for each combination, the last list changing fastest. Each list appends to the name, in
// the order of the file: ".bf16" for a type, ".causal" for true and nothing for false, else ".<name in lower case><value>" (".d64",
// ".window_leftm1",
// ".dropout_prob0p5": '-' is m, '.' is p).
struct Case {
  std::string name, doc;
  std::map<std::string, Value> dims;         // also dims of optional inputs that are given
  std::map<std::string, std::string> types;  // type variable → element type
  std::map<std::string, Value> attributes;
  std::vector<std::string> given;           // optional inputs and outputs present
  std::map<std::string, std::string> fill;  // input → its data in this case, instead of the tensor's `fill`
  std::string pointer;
};

// A spec's cases, which may be left unread until somebody asks: a program that makes calls never does. Copies share them; any thread may
// ask.
class Cases {
 public:
  using value_type = Case;
  Cases() : Cases(std::vector<Case>()) {}
  explicit Cases(std::vector<Case> cases);
  explicit Cases(std::function<std::vector<Case>()> read);  // called once
  const std::vector<Case>& all() const;                     // throws what `read` throws

  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  std::size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  const Case& at(std::size_t index) const { return all().at(index); }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A spec's variants. Those that no CPU runs may be left unread until somebody asks: a process that calls on CPUs alone never does. Copies
// share them; any thread may ask.
class Variants {
 public:
  using value_type = Variant;
  Variants() : Variants(std::vector<Variant>()) {}
  explicit Variants(std::vector<Variant> variants);
  // left: by index, which are not read yet; they are empty in `some`. read: all of them, called once.
  Variants(std::vector<Variant> some, std::vector<bool> left, std::function<Variants()> read);

  const std::vector<Variant>& all() const;    // throws what `read` throws
  std::vector<const Variant*> ready() const;  // those that were read at first: all, or at least those that name an arch of CPUs
  bool is_whole() const;                      // none was left unread

  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  std::size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  const Variant& at(std::size_t index) const { return all().at(index); }
  const Variant& operator[](std::size_t index) const { return all()[index]; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The dim along which calls are independent of each other: several calls that differ in data alone are one call of a larger dim, under
// the condition ("batch": {"dim": "B", "if": "dropout_prob == 0"}).
struct Batch {
  std::string dim;       // empty: there is none
  Expression condition;  // empty: always
};

// A step of the gradient: a call of a kernel, or a gradient that another tensor is. In JSON "gradient": {"kernel": K} is one call whose
// tensors and attributes have their names from this spec; [{"kernel": K, "tensors": {of K: of this spec}, "attributes": {of K: expression
// over this spec's dims and attributes}}, ..., {"tensor": "dx", "is": "dout"}] says them one by one. "dx" is the gradient of x
// (gradient.hpp); a step whose gradient is of a tensor that was not given is left out, optional tensors of its call one by one.
// A name in `tensors` that is no tensor of this spec and no gradient is a temporary: steps before make it, and steps after take it. What
// several steps give for one "dx" is added.
struct GradientStep {
  std::string kernel;                                        // empty: no call, `tensor` has the data of `is`
  bool mapped = false;                                       // by `tensors` and `attributes`; else by name
  std::vector<std::pair<std::string, std::string>> tensors;  // of the kernel, of this spec or a gradient
  std::vector<Named> attributes;
  std::string tensor, is;
  std::string pointer;
};

// A kernel whose calls are calls of another one: tensors and attributes have the other's names, `attributes` a value that no call gives.
// In JSON "same_as": {"kernel": K, "attributes": {of K: expression over this spec's dims and attributes}}, in place of variants.
struct SameAs {
  std::string kernel;
  std::vector<Named> attributes;

  bool fixed(std::string_view attribute) const;
};

struct Spec {
  std::string kernel, doc;
  std::string file;  // as the user named it
  std::vector<Dim> dims;
  std::vector<std::pair<std::string, std::vector<std::string>>> types;  // variable, element types
  // A variable that no tensor given binds (an output yet to be made) → the variable whose type it takes. In JSON {"any": [types],
  // "default": V}.
  std::map<std::string, std::string> type_defaults;
  std::vector<Form> forms;
  std::vector<Attribute> attributes;
  // Inputs, then outputs that are tensors of their own, in the spec's order: the order of the packed call.
  std::vector<TensorSpec> tensors;
  std::vector<Output> outputs;  // what callers get: also those that update an input, not those for the gradient alone
  std::vector<Requirement> requirements;
  std::vector<GradientStep> gradient;  // empty: it has none
  Batch batch;
  // Dims and attributes in which a call may differ from one that was measured and still take its config ("tuning": {"nearest": [...]}).
  // Everything else in their keys must be equal. Empty: only its own measurement serves a call.
  std::vector<std::string> nearest;
  Expression flops, bytes;
  std::vector<SharedLet> let;  // each sees those before it
  Variants variants;           // with same_as: the other's
  std::optional<SameAs> same_as;
  std::shared_ptr<const Spec> served_by;  // with same_as: the other; images bear its name
  Cases cases;
  std::map<std::string, double> tolerance;  // element type → relative Frobenius error (tolerance.hpp)
  Origins origins;                          // where a pointer's place is written in the file, of what is "like" another

  const Spec& server() const { return served_by ? *served_by : *this; }  // whose names its variants use
  const TensorSpec* tensor(std::string_view name) const;
  const Output* output(std::string_view name) const;
  const Attribute* attribute(std::string_view name) const;
  const SharedLet* shared_let(std::string_view name) const;
  const Variant* variant(std::string_view name) const;
  const Case* find_case(std::string_view name) const;
};

// ---- hardware as data: specs/arch/<arch>.json ----

struct Arch {
  // `extends`. CPU: the arch whose binaries it also runs. GPUs: the arch whose kernels it also takes, compiled for itself; which binaries
  // a device runs, its backend knows. Empty: none.
  std::string name, doc;  // "avx512"
  std::string platform;   // cpu, cuda, hip, simt
  std::string extends;
  std::vector<std::string> ancestors;          // names of what it extends, the nearest first (resolve_archs)
  std::vector<std::string> requires_features;  // CPU: names in /proc/cpuinfo's spelling that must all be present (own ones; extends adds)
  std::string machine;                         // CPU: "x86_64", "aarch64"; empty: any
  std::vector<std::string> flags;              // compiler flags
  std::map<std::string, Value> properties;     // arch.<name> in expressions: vector_bytes, registers, shared_memory, threads, ...
  std::string file;
  std::map<std::string, Value> replaced{};  // what the file says of those that are the machine's own: arch.listed.<name>
  std::string full_name() const { return platform + ":" + name; }
  bool tests_only() const;  // property tests_only: run by checks, never chosen for a call
};

}  // namespace ejk::spec
