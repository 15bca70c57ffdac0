// Requirements judged on every call: the plan's binding, with this call's data pointers and varying attributes.
#pragma once
#include <span>

#include "ejk/call.hpp"
#include "execute/device_data.hpp"
#include "execute/library_state.hpp"
#include "spec/call/host_integers.hpp"

namespace ejk {

class LiveScope : public spec::Scope {
 public:
  LiveScope(const KernelHandle& kernel, const spec::Binding& binding, std::span<const TensorView* const> tensors,
            std::span<const AttributeValue> attributes, DeviceData& data)
      : kernel_(kernel), binding_(binding), tensors_(tensors), attributes_(attributes), data_(data) {}
  std::optional<spec::Value> lookup(std::string_view name) const override;
  std::optional<spec::Value> call(std::string_view function, std::string_view name, std::span<const spec::Value> rest) const override;

 private:
  spec::NamedData data_of(std::string_view tensor) const;  // no facts: not given

  const KernelHandle& kernel_;
  const spec::Binding& binding_;
  std::span<const TensorView* const> tensors_;
  std::span<const AttributeValue> attributes_;
  DeviceData& data_;
};

// Throws CallError with the requirement's message if it does not hold.
void judge_live(const spec::Requirement& requirement, const LiveScope& scope, const KernelHandle& kernel);

}  // namespace ejk
