// The mean of two tokens, by an installed ejk: exits 0 if it is 2.
#include <cstdio>
#include <ejk/ejk.hpp>
#include <ejk/mean_pooling.hpp>

int main() {
  const ejk::Tensor x(ejk::DType::f32, {1, 2, 1});
  x.data<float>()[0] = 1;
  x.data<float>()[1] = 3;
  const auto mean = ejk::mean_pooling(x);
  if (!mean) std::fprintf(stderr, "%s\n", mean.error().message.c_str());
  return mean && mean->out.data<float>()[0] == 2 ? 0 : 1;
}
