// Lets are taken one by one, each after those that it is made of, so that no chain of them needs stack here.
#include "spec/check/let_nesting.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "spec/expression/expression_node.hpp"

namespace ejk::spec {
namespace {

constexpr int deepest = 200;  // as of one expression: what evaluates them needs stack for all

int depth_of(const Expression& expression) {
  const auto* const root = root_of(expression);
  return root ? root->depth : 0;
}

struct Node {
  std::vector<std::size_t> users;
  std::size_t waits_for = 0;  // lets in it that were not taken yet; one that it uses twice counts twice, here and as its user
  int below = 0;              // levels of the deepest of them
};

std::vector<Node> graph_of(const std::vector<const Named*>& lets) {
  std::unordered_map<std::string_view, std::size_t> index(lets.size());
  for (std::size_t i = 0; i < lets.size(); ++i) index.emplace(lets[i]->name, i);
  std::vector<Node> nodes(lets.size());
  for (std::size_t i = 0; i < lets.size(); ++i)
    all_nodes(lets[i]->expression, [&](const Expression::Node& node) {
      if (node.operation != Operation::name) return true;
      if (const auto used = index.find(node.name); used != index.end()) {
        nodes[used->second].users.push_back(i);
        ++nodes[i].waits_for;
      }
      return true;
    });
  return nodes;
}

}  // namespace

LetNesting nesting_of(const std::vector<const Named*>& lets) {
  auto nodes = graph_of(lets);
  std::vector<std::size_t> free;
  for (std::size_t i = nodes.size(); i-- > 0;)
    if (nodes[i].waits_for == 0) free.push_back(i);
  LetNesting found;
  while (!free.empty()) {
    const std::size_t at = free.back();
    free.pop_back();
    const int depth = std::min(nodes[at].below + depth_of(lets[at]->expression), deepest + 1);
    if (depth > deepest && !found.too_deep) found.too_deep = lets[at];
    for (const std::size_t user : nodes[at].users) {
      nodes[user].below = std::max(nodes[user].below, depth);
      if (--nodes[user].waits_for == 0) free.push_back(user);
    }
  }
  for (std::size_t i = 0; i < nodes.size() && !found.circular; ++i)
    if (nodes[i].waits_for > 0) found.circular = lets[i];
  return found;
}

std::string LetNesting::sentence(const Named& too_deep) {
  return "the let '" + too_deep.name + "' and those that it is made of are nested more than " + std::to_string(deepest) +
         " levels deep; make them of fewer in each other";
}

}  // namespace ejk::spec
