// What the sanitizers' runtimes ask a program for before main. It stands in the programs
// themselves, not in the environment: several tests start programs with an environment of their
// own.
//
// A suppression names a library of others, never code of ours, and says why.

extern "C" {

const char* __asan_default_options();
const char* __lsan_default_suppressions();
const char* __ubsan_default_options();
const char* __tsan_default_options();
const char* __tsan_default_suppressions();

const char* __asan_default_options() {
  return "detect_leaks=1:halt_on_error=1:detect_stack_use_after_return=1:check_initialization_"
         "order=1";
}

const char* __lsan_default_suppressions() {
  return "";
}

const char* __ubsan_default_options() {
  return "halt_on_error=1:print_stacktrace=1";
}

const char* __tsan_default_options() {
  return "halt_on_error=1:second_deadlock_stack=1";
}

const char* __tsan_default_suppressions() {
  // strerror makes a table of texts once, behind a guard that an uninstrumented library does not
  // show. A Status that two threads share is counted up in its header and down in its library:
  // whoever frees it seems to know nothing of the others. (The library jumps into operator delete,
  // so that it stands in no stack; its caller does.)
  return "race:libabsl_strerror.so\nrace:absl::*Status::Unref\n";
}
}
