// One command on a machine that fails one call: what must hold, at every call.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "faults/commands.h"
#include "faults/snapshot.h"

namespace mantissa::faults {

/// What the calls of a group can do.
inline std::vector<Fault> variants(Group group) {
  const auto one = [](const char* does, bool lasting = false) {
    Fault f;
    f.does = does;
    f.lasting = lasting;
    return f;
  };
  switch (group) {
    case Group::open:
      return {one("EIO"), one("EMFILE", true), one("EACCES"), one("EINTR"), one("KILL"), one("EIO", true)};
    case Group::read:
      return {one("EIO"), one("short"), one("EINTR"), one("EIO", true), one("short", true)};
    case Group::write:
      return {one("ENOSPC", true), one("EIO"), one("short"), one("KILL"), one("EINTR"), one("ENOSPC")};
    case Group::sync:
      return {one("EIO"), one("KILL"), one("ENOSPC"), one("EIO", true), one("TERM"), one("EINTR")};
    case Group::rename:
      return {one("EIO"), one("KILL"), one("ENOSPC"), one("EACCES", true), one("HUP")};
    case Group::stat:
      return {one("EIO"), one("EACCES"), one("ENOMEM"), one("EIO", true)};
    case Group::truncate:
      return {one("ENOSPC"), one("EIO"), one("KILL")};
    case Group::remove:
      return {one("EIO"), one("KILL"), one("EACCES", true), one("INT")};
    case Group::mkdir:
      return {one("ENOSPC"), one("EACCES"), one("KILL")};
    case Group::lock:
      return {one("EIO"), one("EINTR"), one("ENOMEM")};
    case Group::memory:
      return {one("ENOMEM")};
    case Group::thread:
      return {one("EAGAIN"), one("EAGAIN", true)};
    default:
      return {one("EIO"), one("ENOMEM"), one("EMFILE")};
  }
}

/// A command with its result on a machine without faults.
class Sweep {
 public:
  explicit Sweep(const Command& command) : command_(command) {}

  void prepare() {
    ASSERT_NO_FATAL_FAILURE(faults::prepare(machine, command_));
    fs::rename(machine.work(), machine.root() / "before");
    restore();
    const Ran whole = machine.run(with_options(command_.run));
    ASSERT_EQ(whole.code, 0) << whole.err;
    counts_ = whole.counts;
    printed_ = whole.out;
    results_ = results(snapshot(machine.work()), command_.outputs);
    const std::string foreign = foreign_difference(before_, snapshot(machine.work()), command_.outputs);
    ASSERT_EQ(foreign, "") << "without a fault";
  }

  /// The calls that can fail, with what they do. Of memory, `most` calls evenly spread.
  std::vector<Fault> points(std::int64_t most) const {
    std::vector<Fault> all;
    for (std::size_t g = 0; g < kGroupCount; ++g) {
      const std::vector<Fault> kinds = variants(static_cast<Group>(g));
      const bool sampled = static_cast<Group>(g) == Group::memory && counts_.calls[g] > most;
      const std::int64_t number = sampled ? most : counts_.calls[g];
      for (std::int64_t i = 0; i < number; ++i) {
        Fault f = kinds[(static_cast<std::size_t>(i) + seed()) % kinds.size()];
        f.calls = kGroups[g];
        f.at = 1 + (sampled ? (counts_.calls[g] * (2 * i + 1) / (2 * most) + seed() * 37) % counts_.calls[g]
                            : i);
        all.push_back(f);
      }
    }
    return all;
  }

  /// Runs the command with a fault, checks its end, and continues it. Returns what is wrong, if anything is.
  std::string run(const Fault& fault) {
    restore();
    const Ran ran = machine.run(with_options(command_.run), fault);
    std::string wrong = complaint(ran, signal_of(fault));
    const Snapshot after = snapshot(machine.work());
    if (wrong.empty()) wrong = foreign_difference(before_, after, command_.outputs, ran.signal != 0);
    if (wrong.empty() && ran.code == 0) {
      wrong = difference(results_, results(after, command_.outputs));
      if (wrong.empty() && command_.prints && ran.out != printed_) wrong = "prints other results: " + ran.out;
      if (!wrong.empty()) wrong = "exit 0, but " + wrong;
    }
    if (wrong.empty() && ran.code != 0) wrong = continued();
    if (wrong.empty()) return "";
    return fmt::format("{} ({}{} of {} {}): {}\n  {}\n  exit {}, standard error: {}", ran.fault(), fault.does,
                       fault.lasting ? " from then on, call" : ", call", fault.calls, fault.at, wrong,
                       ran.command, ran.code, ran.err);
  }

  Machine machine;

 private:
  static int signal_of(const Fault& fault) { return fault.does == "KILL" ? SIGKILL : 0; }

  void restore() {
    fs::remove_all(machine.work());
    fs::copy(machine.root() / "before", machine.work(),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    if (before_.empty()) before_ = snapshot(machine.work());
  }

  // The command again, as a user would continue it.
  std::string continued() const {
    const bool is_there = std::any_of(command_.outputs.begin(), command_.outputs.end(), [&](const auto& out) {
      return fs::exists(machine.work() / out);
    });
    // A complete file of `init`, which has no --overwrite.
    if (is_there && std::string_view(command_.run).starts_with("init"))
      return difference(results_, results(snapshot(machine.work()), command_.outputs));
    const Ran again = machine.run(with_options(command_.again));
    if (again.hung || again.signal != 0 || again.code != 0)
      return fmt::format("does not continue: exit {}, signal {}: {}", again.code, again.signal, again.err);
    const Snapshot after = snapshot(machine.work());
    std::string wrong = difference(results_, results(after, command_.outputs));
    if (wrong.empty()) wrong = foreign_difference(before_, after, command_.outputs);
    if (wrong.empty() && command_.prints && again.out != printed_) wrong = "prints " + again.out;
    return wrong.empty() ? "" : "after it was continued, " + wrong;
  }

  const Command& command_;
  Counts counts_;
  Snapshot before_, results_;
  std::string printed_;
};

}  // namespace mantissa::faults
