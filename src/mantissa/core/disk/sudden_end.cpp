#include "mantissa/core/disk/sudden_end.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "mantissa/core/disk/unfinished.h"

namespace mantissa::disk {
namespace {

using What = RemovedAtSuddenEnd::What;

/// A handler reads an entry while other threads fill others: `state` says whether the rest holds.
struct Entry {
  enum class State : std::uint8_t { free, taken, holds };

  std::atomic<State> state = State::free;
  What what = What::file;
  int descriptor = 0;
  pid_t owner = 0;          // a process forked from this one removes nothing
  std::uint64_t since = 0;  // later ones are removed first
  std::array<char, PATH_MAX> path{};
};

struct Table {
  std::array<Entry, 64> entries;
  std::atomic<std::uint64_t> registered = 0;
  std::atomic<int> undivided = 0;
  std::atomic<bool> is_ending = false;
};

static_assert(std::atomic<Entry::State>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

// Handlers of signals get no argument.
constinit Table table;                          // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
constinit thread_local int undivided_here = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

bool is_name_of(const char* path, int descriptor) {
  struct stat open {
  }, named{};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path, &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

/// Removes the files with the mark in an open directory. opendir() would allocate memory.
void remove_marked(int directory) {
  struct Name {
    ino64_t inode;
    off64_t offset;
    unsigned short length;
    unsigned char type;
    char name[1];  // NOLINT(modernize-avoid-c-arrays): linux_dirent64 of getdents64(2)
  };
  const int listed = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listed < 0) return;
  alignas(Name) std::array<std::byte, 4096> buffer;
  for (bool removed = true; removed;) {  // a removal may move the names that follow
    removed = false;
    ::lseek(listed, 0, SEEK_SET);
    for (long got = 0; (got = ::syscall(SYS_getdents64, listed, buffer.data(), buffer.size())) > 0;) {
      for (long at = 0; at < got;) {
        const std::byte* record = buffer.data() + at;
        const char* name = reinterpret_cast<const char*>(record + offsetof(Name, name));
        unsigned short length = 0;
        std::memcpy(&length, record + offsetof(Name, length), sizeof(length));
        at += length;
        struct stat status {};
        const bool is_ours = ::fstatat(listed, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                             S_ISREG(status.st_mode) && (status.st_mode & kMark) != 0;
        if (is_ours && ::unlinkat(listed, name, 0) == 0) removed = true;
      }
    }
  }
  ::close(listed);
}

void remove_name(const Entry& entry) {
  const char* path = entry.path.data();
  switch (entry.what) {
    case What::file:
      if (is_name_of(path, entry.descriptor)) ::unlink(path);
      return;
    case What::directory:
      if (!is_name_of(path, entry.descriptor)) return;
      remove_marked(entry.descriptor);
      ::rmdir(path);
      return;
    case What::empty_directory:
      ::rmdir(path);
      return;
  }
}

}  // namespace

RemovedAtSuddenEnd::RemovedAtSuddenEnd(const std::filesystem::path& path, What what,
                                       int descriptor) noexcept {
  const std::string_view name = path.native();
  if (name.size() >= PATH_MAX) return;
  for (std::size_t i = 0; i < table.entries.size(); ++i) {
    Entry& entry = table.entries[i];
    Entry::State free = Entry::State::free;
    if (!entry.state.compare_exchange_strong(free, Entry::State::taken)) continue;
    entry.what = what;
    entry.descriptor = descriptor;
    entry.owner = ::getpid();
    entry.since = table.registered.fetch_add(1);
    *std::ranges::copy(name, entry.path.begin()).out = '\0';
    entry.state = Entry::State::holds;
    entry_ = static_cast<int>(i);
    return;
  }
}

RemovedAtSuddenEnd::RemovedAtSuddenEnd(RemovedAtSuddenEnd&& other) noexcept
    : entry_(std::exchange(other.entry_, -1)) {}

RemovedAtSuddenEnd& RemovedAtSuddenEnd::operator=(RemovedAtSuddenEnd&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

void RemovedAtSuddenEnd::keep() noexcept {
  const int entry = std::exchange(entry_, -1);
  if (entry >= 0) table.entries[static_cast<std::size_t>(entry)].state = Entry::State::free;
}

void RemovedAtSuddenEnd::remove() noexcept {
  if (entry_ >= 0) remove_name(table.entries[static_cast<std::size_t>(entry_)]);
  keep();
}

Undivided::Undivided() noexcept {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  ++undivided_here;
  ++table.undivided;
  if (!table.is_ending) return;
  --table.undivided;
  wait_for_the_end();
}

Undivided::~Undivided() {
  --table.undivided;
  --undivided_here;
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void remove_at_sudden_end() noexcept {
  constexpr std::timespec kMillisecond = {.tv_sec = 0, .tv_nsec = 1'000'000};
  if (undivided_here > 0) return;  // nobody can tell which calls are done
  table.is_ending = true;
  while (table.undivided > 0) ::nanosleep(&kMillisecond, nullptr);
  const pid_t owner = ::getpid();
  for (std::uint64_t before = UINT64_MAX;;) {
    const Entry* last = nullptr;
    for (const Entry& entry : table.entries) {
      const bool is_ours = entry.state == Entry::State::holds && entry.owner == owner;
      if (is_ours && entry.since < before && (last == nullptr || entry.since > last->since)) last = &entry;
    }
    if (last == nullptr) return;
    before = last->since;
    remove_name(*last);
  }
}

}  // namespace mantissa::disk
