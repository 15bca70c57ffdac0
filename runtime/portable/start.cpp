// A program's start under glibc before 2.34, which leaves it to the program to run its own constructors. Linked into the wheel's program.
using Main = int(int, char**, char**);

extern "C" int old_start(Main*, int, char**, Main*, void (*)(), void (*)(), void*);
asm(".symver old_start, __libc_start_main@GLIBC_2.2.5");

extern "C" {
extern void (*__init_array_start[])(int, char**, char**) __attribute__((visibility("hidden")));
extern void (*__init_array_end[])(int, char**, char**) __attribute__((visibility("hidden")));
void _init();
}

namespace {

int construct(int count, char** arguments, char** environment) {
  _init();
  for (auto** each = __init_array_start; each != __init_array_end; ++each) (*each)(count, arguments, environment);
  return 0;
}

}  // namespace

// Newer ones take the constructors' function, too, and then run none themselves.
extern "C" __attribute__((visibility("hidden"), used)) int portable_start(Main* entry, int count, char** arguments, Main*, void (*)(),
                                                                          void (*finish)(), void* stack) asm("__libc_start_main");
int portable_start(Main* entry, int count, char** arguments, Main*, void (*)(), void (*finish)(), void* stack) {
  return old_start(entry, count, arguments, construct, nullptr, finish, stack);
}
