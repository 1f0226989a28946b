// One command on a machine that fails one call: what must hold, at every call.
#pragma once

#include <string>
#include <vector>

#include "faults/prepared.h"

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
      return {one("ENOSPC", true), one("EIO"),    one("short"), one("KILL"),
              one("EINTR"),        one("ENOSPC"), one("TERM")};
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
      return {one("ENOSPC"), one("EACCES"), one("KILL"), one("EIO")};
    case Group::mode:
      return {one("EIO"), one("KILL"), one("EACCES", true)};
    case Group::lock:
      return {one("EIO"), one("EINTR"), one("ENOMEM")};
    case Group::memory:
      return {one("ENOMEM"), one("ENOMEM", true)};
    case Group::thread:
      return {one("EAGAIN"), one("EAGAIN", true)};
    default:
      return {one("EIO"), one("ENOMEM"), one("EMFILE")};
  }
}

/// Returns the calls of a command that can fail, with what they do. Of memory, `most` calls evenly spread.
inline std::vector<Fault> points(const Counts& counts, std::int64_t most) {
  std::vector<Fault> all;
  for (std::size_t g = 0; g < kGroupCount; ++g) {
    const std::vector<Fault> kinds = variants(static_cast<Group>(g));
    const std::int64_t calls = counts.calls[g];
    const bool sampled = static_cast<Group>(g) == Group::memory && calls > most;
    for (std::int64_t i = 0; i < (sampled ? most : calls); ++i) {
      Fault f = kinds[(static_cast<std::size_t>(i) + seed()) % kinds.size()];
      f.calls = kGroups[g];
      f.at = 1 + (sampled ? (calls * (2 * i + 1) / (2 * most) + 37 * std::int64_t{seed()}) % calls : i);
      all.push_back(f);
    }
  }
  return all;
}

/// Returns whether a fault is a lack of space, memory or threads, or a write that fails, which has exit
/// code 1.
inline bool is_exhausted(const Fault& fault) {
  return fault.does == "ENOSPC" || (fault.calls == "mkdir" && fault.does == "EIO") ||
         fault.calls == "memory" || fault.calls == "thread" || fault.disk >= 0;
}

/// Runs a command with a fault, checks its end, and continues it. Returns what is wrong, if anything is.
inline std::string run_with(const Prepared& prepared, const Fault& fault) {
  const Command& command = prepared.command();
  prepared.restore();
  const Ran ran = prepared.machine.run(with_options(command.run), fault);
  std::string wrong = complaint(ran, fault.does == "KILL" ? SIGKILL : 0);
  if (wrong.empty() && is_exhausted(fault) && ran.code == 2)
    wrong = "exit code 2, but what is missing is a resource of the machine";
  if (wrong.empty() && ran.code == 0 && ran.counts.faults > 0 && fault.calls == "lock" && fault.does == "EIO")
    wrong = "exit 0 without the lock";
  const Snapshot after = snapshot(prepared.machine.work());
  const Snapshot found = results(after, command.outputs);
  // A process that was killed leaves its unfinished files, and so does one that cannot remove them.
  const bool cannot_remove =
      ran.counts.faults > 0 && (fault.lasting || fault.calls == "open" || fault.calls == "list" ||
                                fault.calls == "stat" || fault.calls == "remove");
  const bool leaves = ran.signal != 0 || cannot_remove;
  if (wrong.empty()) wrong = foreign_difference(prepared.before(), after, command.outputs, leaves);
  if (wrong.empty() && ran.code == 0) {
    wrong = leaves ? difference(finished(prepared.expected()), finished(found))
                   : difference(prepared.expected(), found);
    if (wrong.empty() && command.prints && ran.out != prepared.printed()) wrong = "it prints " + ran.out;
    if (!wrong.empty()) wrong = "exit 0, but " + wrong;
  }
  // The next command removes what was left.
  const bool is_clean =
      found == prepared.expected() && foreign_difference(prepared.before(), after, command.outputs).empty();
  if (wrong.empty() && (ran.code != 0 || !is_clean)) wrong = prepared.continued();
  if (wrong.empty()) return "";
  return fmt::format("{} ({}{} {} of {}): {}\n  exit {}, standard error: {}\n  {}\n", ran.fault(), fault.does,
                     fault.lasting ? " from then on, call" : ", call", fault.at, fault.calls, wrong, ran.code,
                     ran.err, ran.command);
}

}  // namespace mantissa::faults
