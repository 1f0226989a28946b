// Settings, counts and the decision of each call.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

#include "faults/shim/internal.h"

namespace mantissa::faults {
namespace {

struct Named {
  std::string_view name;
  int value;
};
constexpr Named kErrors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EACCES", EACCES},
                             {"EMFILE", EMFILE}, {"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN},
                             {"EINTR", EINTR},   {"EROFS", EROFS},   {"EDQUOT", EDQUOT}};
constexpr Named kSignals[] = {{"KILL", SIGKILL}, {"TERM", SIGTERM}, {"INT", SIGINT}, {"HUP", SIGHUP}};

struct Settings {
  bool chosen[kGroupCount] = {};
  std::int64_t at = 0;  // 0: never
  bool lasting = false, halves = false, pauses = false;
  int error = 0, signal = 0;
  char under[PATH_MAX] = "";
  std::size_t below = 65536;
  std::int64_t disk = -1, pause = 100;
  int journal = -1;
  bool plain_renames = false;
  bool mine = false;  // the program is the one that is meant
};

Settings settings;
Counts no_counts;
Counts* counts = &no_counts;
std::atomic<bool> active{false};
std::atomic<std::int64_t> filled{0};
std::atomic_flag journal_lock = ATOMIC_FLAG_INIT;

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::int64_t number(const char* name, std::int64_t otherwise) {
  const std::string_view text = variable(name);
  std::int64_t value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void read_groups(std::string_view text) {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    for (std::size_t g = 0; g < kGroupCount; ++g) {
      const bool on_files = g < static_cast<std::size_t>(Group::memory);
      if (word == kGroups[g] || (word == "files" && on_files)) settings.chosen[g] = true;
    }
  }
}

void read_effect(std::string_view text) {
  settings.halves = text == "short";
  settings.pauses = text == "pause";
  for (const Named& e : kErrors) {
    if (e.name == text) settings.error = e.value;
  }
  for (const Named& s : kSignals) {
    if (s.name == text) settings.signal = s.value;
  }
}

// Takes a number that the program and its children do not meet.
int opened_high(std::string_view path, int flags) {
  if (path.empty()) return -1;
  const int low = static_cast<int>(raw(SYS_openat, AT_FDCWD, path.data(), flags | O_CLOEXEC, 0666));
  if (low < 0) return -1;
  const int high = static_cast<int>(raw(SYS_fcntl, low, F_DUPFD_CLOEXEC, 900));
  if (high < 0) return low;  // few descriptors are allowed
  raw(SYS_close, low);
  return high;
}

void open_counts(std::string_view path) {
  const int file = opened_high(path, O_RDWR | O_CREAT);
  if (file < 0) return;
  if (raw(SYS_ftruncate, file, sizeof(Counts)) == 0) {
    const long at = raw(SYS_mmap, nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L);
    if (at != -1) counts = new (reinterpret_cast<void*>(at)) Counts();
  }
  raw(SYS_close, file);
}

__attribute__((constructor)) void read_settings() {
  const std::string_view program = variable("MANTISSA_FAULT_PROGRAM");
  settings.mine = (program.empty() ? "mantissa" : program) == program_invocation_short_name;
  if (!settings.mine) return;
  read_groups(variable("MANTISSA_FAULT_CALLS"));
  read_effect(variable("MANTISSA_FAULT_DOES"));
  settings.at = number("MANTISSA_FAULT_AT", 0);
  settings.lasting = number("MANTISSA_FAULT_LASTING", 0) != 0;
  settings.below = static_cast<std::size_t>(number("MANTISSA_FAULT_BELOW", 65536));
  settings.disk = number("MANTISSA_FAULT_DISK", -1);
  settings.plain_renames = number("MANTISSA_FAULT_PLAIN_RENAMES", 0) != 0;
  settings.pause = number("MANTISSA_FAULT_PAUSE", 100);
  const std::string_view under = variable("MANTISSA_FAULT_UNDER");
  std::memcpy(settings.under, under.data(), std::min(under.size(), sizeof settings.under - 1));
  open_counts(variable("MANTISSA_FAULT_COUNTS"));
  settings.journal = opened_high(variable("MANTISSA_FAULT_JOURNAL"), O_WRONLY | O_CREAT | O_APPEND);
}

void add(std::int64_t& counter) {
  std::atomic_ref<std::int64_t>(counter).fetch_add(1, std::memory_order_relaxed);
}

// Counts a call, and says what it shall do. `what` and `where` describe it.
Verdict decide(Group group, const char* what, std::string_view where) {
  const auto g = static_cast<std::size_t>(group);
  add(counts->calls[g]);
  if (!settings.chosen[g]) return {};
  const std::int64_t call =
      std::atomic_ref<std::int64_t>(counts->numbered).fetch_add(1, std::memory_order_relaxed) + 1;
  if (settings.at == 0 || call < settings.at || (call > settings.at && !settings.lasting)) return {};
  if (std::atomic_ref<std::int64_t>(counts->faults).fetch_add(1) == 0) {
    std::snprintf(counts->first.data(), counts->first.size(), "%s %.*s", what, static_cast<int>(where.size()),
                  where.data());
  }
  if (settings.pauses) {
    const std::int64_t ms = settings.pause;
    const timespec pause{ms / 1000, ms % 1000 * 1'000'000};
    raw(SYS_nanosleep, &pause, nullptr);
  }
  if (settings.signal != 0) raw(SYS_kill, raw(SYS_getpid), settings.signal);
  return {settings.error, settings.halves};
}

}  // namespace

bool is_active() {
  return active.load(std::memory_order_relaxed);
}

bool has_journal() {
  return settings.journal >= 0 && is_active();
}

bool has_plain_renames() {
  return settings.plain_renames && is_active();
}

bool is_watched(std::string_view path) {
  const std::string_view under = settings.under;
  if (!is_active() || path.empty()) return false;
  return path.starts_with(under) && (path.size() == under.size() || path[under.size()] == '/');
}

Verdict enter(Group group, const char* call, const Path& path) {
  return is_watched(path.view()) ? decide(group, call, path.view()) : Verdict{};
}

Verdict enter(Group group, const char* call, std::size_t bytes) {
  if (!is_active() || (group == Group::memory && bytes >= settings.below)) return {};
  char text[32];
  const int size = std::snprintf(text, sizeof text, "of %zu bytes", bytes);
  return decide(group, call, {text, static_cast<std::size_t>(size)});
}

int fill_disk(const Path& path, std::size_t bytes) {
  if (settings.disk < 0 || !is_watched(path.view())) return 0;
  if (filled.fetch_add(static_cast<std::int64_t>(bytes)) + static_cast<std::int64_t>(bytes) <= settings.disk)
    return 0;
  filled.fetch_sub(static_cast<std::int64_t>(bytes));
  return ENOSPC;
}

Recorded::Recorded() {
  if (!has_journal()) return;
  while (journal_lock.test_and_set(std::memory_order_acquire)) raw(SYS_sched_yield);
}

Recorded::~Recorded() {
  if (has_journal()) journal_lock.clear(std::memory_order_release);
}

void Recorded::add(Action action, std::string_view path, std::string_view other, std::int64_t offset,
                   const void* data, std::size_t size) const {
  if (!has_journal()) return;
  const int saved = errno;
  RecordHeader header{action, static_cast<std::uint32_t>(path.size()),
                      static_cast<std::uint32_t>(other.size()), static_cast<std::uint32_t>(size), offset};
  raw(SYS_write, settings.journal, &header, sizeof header);
  raw(SYS_write, settings.journal, path.data(), path.size());
  raw(SYS_write, settings.journal, other.data(), other.size());
  if (size > 0) raw(SYS_write, settings.journal, data, size);
  errno = saved;
}

void* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();  // the C library has all functions of this library
  return found;
}

}  // namespace mantissa::faults

namespace {

using Main = int (*)(int, char**, char**);
Main program_main = nullptr;

int watched_main(int count, char** words, char** environment) {
  mantissa::faults::active = mantissa::faults::settings.mine;
  const int code = program_main(count, words, environment);
  mantissa::faults::active = false;  // what runs at the end of a process changes no file
  return code;
}

}  // namespace

extern "C" int __libc_start_main(Main main, int count, char** words, void (*init)(), void (*fini)(),
                                 void (*loader)(), void* stack) {
  program_main = main;
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  return mantissa::faults::next_of<Start>("__libc_start_main")(watched_main, count, words, init, fini, loader,
                                                               stack);
}
