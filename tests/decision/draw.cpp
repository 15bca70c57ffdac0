// Draws: half of what is drawn is as the spec's author had it in mind, so that most calls are legal and most configs valid.
#include "tests/decision/draw.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ejk::test {
namespace {

constexpr std::int64_t extents[] = {1, 2, 3, 4, 8, 16, 31, 32, 64, 80, 96, 128, 256, 300, 1000, 4096};

void change_dim(Dice& dice, spec::Case& c) {
  if (c.dims.empty()) return;
  auto& [name, value] = dice.of(c.dims);
  if (std::holds_alternative<std::int64_t>(value)) value = dice.of(extents);
}

void change_type(Dice& dice, const spec::Spec& spec, spec::Case& c) {
  if (spec.types.empty()) return;
  const auto& [name, types] = dice.of(spec.types);
  if (c.types.contains(name) && !types.empty()) c.types[name] = dice.of(types);
}

void change_attribute(Dice& dice, const spec::Spec& spec, spec::Case& c) {
  static constexpr std::int64_t integers[] = {-1, 0, 1, 2, 16, 64, 1024};
  static constexpr double floats[] = {0, 0.125, 0.5, 1, 30};
  if (spec.attributes.empty()) return;
  const auto& attribute = dice.of(spec.attributes);
  using Type = spec::AttributeType;
  if (attribute.type == Type::boolean) c.attributes[attribute.name] = dice.one_in(2);
  if (attribute.type == Type::integer) c.attributes[attribute.name] = dice.of(integers);
  if (attribute.type == Type::floating) c.attributes[attribute.name] = dice.of(floats);
  if (attribute.type == Type::string && !attribute.choices.empty()) c.attributes[attribute.name] = dice.of(attribute.choices);
}

void change_given(Dice& dice, const spec::Spec& spec, spec::Case& c) {
  std::vector<std::string> optional;
  for (const auto& tensor : spec.tensors)
    if (tensor.optional) optional.push_back(tensor.name);
  if (optional.empty()) return;
  const auto& name = dice.of(optional);
  if (!std::erase(c.given, name)) c.given.push_back(name);
}

// Rows further apart than they are long.
void pad_rows(Dice& dice, spec::TensorFacts& tensor) {
  static constexpr std::int64_t paddings[] = {1, 4, 8, 64};
  if (tensor.shape.size() < 2) return;
  auto at = tensor.shape.size() - 2;
  tensor.strides[at] += dice.of(paddings);
  for (; at-- > 0;) tensor.strides[at] = tensor.strides[at + 1] * std::max<std::int64_t>(tensor.shape[at + 1], 1);
}

std::optional<spec::CallFacts> draw_facts(Dice& dice, const spec::Spec& spec) {
  auto c = spec.cases.at(dice.below(spec.cases.size()));
  for (auto changes = dice.below(3); changes-- > 0;) change_dim(dice, c);
  for (auto changes = dice.below(3); changes-- > 0;) change_attribute(dice, spec, c);
  if (dice.one_in(2)) change_type(dice, spec, c);
  if (dice.one_in(3)) change_given(dice, spec, c);
  try {
    auto facts = spec::facts_of(spec, c);
    for (const auto& tensor : spec.tensors)  // an output whose shape only data tells: the caller's to give
      if (tensor.output && !tensor.optional && !facts.tensors.contains(tensor.name)) return std::nullopt;
    if (dice.one_in(4)) pad_rows(dice, dice.of(facts.tensors).second);
    spec::bind(spec, facts);
    return facts;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

DrawnCall placed(Dice& dice, const spec::Spec& spec, const spec::CallFacts& facts, int device) {
  DrawnCall call{spec.kernel, {}, facts.attributes, true};
  const bool aligned = dice.one_in(2);
  constexpr auto apart = std::uintptr_t{1} << 50;  // drawn tensors may take terabytes
  auto next = apart;
  for (const auto& [name, tensor] : facts.tensors) {
    const auto size = static_cast<std::uintptr_t>(size_of(tensor.type));
    const std::uintptr_t offsets[] = {0, 0, 0, size, 16, 32};
    const auto offset = aligned ? 0 : dice.of(offsets) / size * size;
    TensorView view(reinterpret_cast<void*>(next + offset), tensor.type, tensor.shape);  // NOLINT: nothing reads there
    std::ranges::copy(tensor.strides, view.strides);
    view.device = {DeviceType::extension, device};
    call.aligned = call.aligned && offset == 0;
    call.tensors.emplace(name, view);
    next += apart;
  }
  return call;
}

// Of a variant's space, valid or not.
Config draw_config(Dice& dice, const BoundCall& call) {
  const auto& eligible = call.decider().eligible();
  const auto& all = call.handle().spec->variants;
  const bool odd = eligible.empty() || dice.one_in(8);
  const auto& variant = odd ? dice.of(all) : *dice.of(eligible).variant;
  Config config{variant.name, "", {}};
  if (!odd) config.arch = dice.of(eligible).arch->full_name();
  for (const auto& parameter : variant.config) config.values.emplace(parameter.name, dice.of(parameter.values));
  return config;
}

// As a user may give it.
Config draw_partial(Dice& dice, Config config) {
  if (dice.one_in(3)) config.variant = "";
  if (dice.one_in(2)) config.arch = "";
  std::erase_if(config.values, [&](const auto&) { return dice.one_in(2); });
  if (!config.values.empty() && dice.one_in(8)) config.values.begin()->second = std::int64_t{12345};
  return config;
}

TuningRecord draw_record(Dice& dice, const BoundCall& call) {
  TuningRecord record;
  record.key = call.canonical(call.invocation()).key();
  record.config = record.baseline = draw_config(dice, call);
  if (dice.one_in(2))
    if (const auto heuristic = call.decider().heuristic()) record.config = public_config(*heuristic);
  const auto hash = call.source_hash(call.invocation(), record.config);
  record.source = hash && !dice.one_in(8) ? *hash : "0123456789abcdef";
  record.samples_us = {10, 11, 12};
  record.median_us = 11;
  record.noise = 0.01;
  record.baseline_us = 12;
  record.measured = 2;
  return record;
}

}  // namespace

World draw_world(Dice& dice, const spec::Catalogue& catalogue, std::size_t number) {
  static constexpr const char* platforms[] = {"cpu", "cuda", "hip", "simt"};
  static constexpr std::int64_t shared[] = {32 << 10, 64 << 10, 100 << 10, 164 << 10, 227 << 10};
  static constexpr std::int64_t counts[] = {1, 2, 16, 64, 108, 132};
  World world;
  world.platform = platforms[number % std::size(platforms)];
  std::vector<const spec::Arch*> archs;
  for (const auto& [name, arch] : catalogue.archs())
    if (arch.platform == world.platform) archs.push_back(&arch);
  for (int i = 0; i < 3; ++i) {
    const auto& arch = *dice.of(archs);
    PosingDevice device{true, fmt::format("{}-posing-{}{}", world.platform, arch.name, i), arch.name, {}};
    const auto measured = [&](const char* name, std::int64_t value) {
      if (arch.properties.contains(name) && dice.one_in(2)) device.properties.emplace_back(name, value);
    };
    measured("shared_memory", dice.of(shared));
    measured("sms", dice.of(counts));
    measured("threads", dice.of(counts));
    world.devices.push_back(std::move(device));
  }
  static constexpr const char* limits[] = {"16384", "49152", "65536", "101376"};
  if (dice.one_in(2)) world.environment.emplace_back("EJKERNEL_SMEM_LIMIT", dice.of(limits));
  if (dice.one_in(3)) world.environment.emplace_back("EJKERNEL_AUTOTUNE_POLICY", dice.one_in(2) ? "autotune" : "heuristics");
  return world;
}

DrawnCall draw_call(Dice& dice, const std::vector<std::shared_ptr<const spec::Spec>>& specs, const World& world) {
  for (;;) {
    const auto& spec = *dice.of(specs);
    if (const auto facts = draw_facts(dice, spec)) return placed(dice, spec, *facts, static_cast<int>(dice.below(world.devices.size())));
  }
}

Circumstances draw_circumstances(Dice& dice, const BoundCall& call) {
  Circumstances drawn;
  using enum CacheMissFallback;
  static constexpr CacheMissFallback fallbacks[] = {autotune, heuristics, error};
  if (dice.one_in(6)) drawn.policy = AutotunePolicy{dice.one_in(2), !dice.one_in(3), dice.of(fallbacks), false};
  if (dice.one_in(4)) drawn.overlay.emplace(dice.one_in(3) ? "" : call.name(), draw_partial(dice, draw_config(dice, call)));
  if (dice.one_in(4)) drawn.record = draw_record(dice, call);
  if (dice.one_in(6)) drawn.remembered.emplace(call.canonical(call.invocation()).key(), draw_partial(dice, draw_config(dice, call)));
  return drawn;
}

}  // namespace ejk::test
