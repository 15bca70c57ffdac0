// A library of some other name that computes on OpenMP: the program itself does not.
extern "C" int fake_other() {
  int sum = 0;
#pragma omp parallel reduction(+ : sum)
  ++sum;
  return sum;
}
