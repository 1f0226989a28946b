// What a disk may hold after the power went: the files of a folder, followed through a journal of calls.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "app/api/tiny.h"
#include "faults/shim/journal.h"

namespace mantissa::faults {

struct Record {
  Action action{};
  std::string path, other, data;
  std::int64_t offset = 0;
};

/// Reads a journal; a record that is cut off at its end is left out.
inline std::vector<Record> read_journal(const std::filesystem::path& file) {
  const std::string bytes = testing::read_all(file);
  std::vector<Record> all;
  for (std::size_t at = 0; at + sizeof(RecordHeader) <= bytes.size();) {
    RecordHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    at += sizeof header;
    const std::size_t size = std::size_t{header.path_size} + header.other_size + header.data_size;
    if (bytes.size() - at < size) break;
    all.push_back({header.action, bytes.substr(at, header.path_size),
                   bytes.substr(at + header.path_size, header.other_size),
                   bytes.substr(at + header.path_size + header.other_size, header.data_size), header.offset});
    at += size;
  }
  return all;
}

/// What survives.
enum class Survival {
  strict,   // POSIX: data of files that were synced, entries of folders that were synced
  ordered,  // all calls, in order: a journal with the data before their metadata
  lost,     // all names and sizes; data that were not synced are zeros
  blocks,   // the same, but some blocks of these data arrived
};
inline constexpr Survival kSurvivals[] = {Survival::strict, Survival::ordered, Survival::lost,
                                          Survival::blocks};
inline const char* name(Survival survival) {
  constexpr const char* kNames[] = {"strict", "ordered", "lost", "blocks"};
  return kNames[static_cast<int>(survival)];
}

class CrashDisk {
 public:
  /// Begins with the contents of `folder`, all of them durable, at the path `place` of the journal.
  CrashDisk(const std::filesystem::path& folder, std::string place) : place_(std::move(place)) {
    root_ = load(folder);
  }

  void apply(const Record& r) {
    switch (r.action) {
      case Action::create: {
        auto file = std::make_shared<Node>();
        file->mode = file->synced_mode = static_cast<std::filesystem::perms>(r.offset);
        return enter(r.path, file);
      }
      case Action::truncate:
        node(r.path).resize(static_cast<std::size_t>(r.offset));
        return;
      case Action::write:
        return node(r.path).write(static_cast<std::size_t>(r.offset), r.data);
      case Action::sync:
        return node(r.path).sync();
      case Action::rename: {
        const NodePointer moved = take(r.path);
        return enter(r.other, moved);
      }
      case Action::exchange: {
        const NodePointer first = take(r.path), second = take(r.other);
        enter(r.path, second);
        return enter(r.other, first);
      }
      case Action::link:
        return enter(r.other, find(r.path));
      case Action::symlink: {
        auto link = std::make_shared<Node>();
        link->target = r.other;
        return enter(r.path, link);
      }
      case Action::remove:
      case Action::rmdir:
        take(r.path);
        return;
      case Action::mkdir: {
        auto folder = std::make_shared<Node>();
        folder->is_folder = true;
        folder->mode = folder->synced_mode = static_cast<std::filesystem::perms>(r.offset);
        return enter(r.path, folder);
      }
      case Action::mode:
        node(r.path).mode = static_cast<std::filesystem::perms>(r.offset);
        return;
      case Action::print:
        printed_ += r.data;
        return;
      default:
        throw std::runtime_error("the simulator does not know this call: " + r.path);
    }
  }

  /// What standard output has received.
  const std::string& printed() const { return printed_; }

  /// Returns the number of calls that can matter to a disk.
  static bool matters(const Record& r) { return r.action != Action::print; }

  /// Writes what survives into the new folder `to`. `seed` chooses the blocks that arrived.
  void write_to(const std::filesystem::path& to, Survival survival, unsigned seed) const {
    write_node(*root_, to, survival, seed);
  }

  /// A text that differs for different surviving contents.
  std::string key(Survival survival, unsigned seed) const {
    std::string all;
    add_key(*root_, survival, seed, all);
    return all;
  }

 private:
  struct Node;
  using NodePointer = std::shared_ptr<Node>;
  using Entries = std::map<std::string, NodePointer>;

  struct Node {
    bool is_folder = false;
    std::string target;               // of a link
    std::string data, synced;         // now, and at the last fsync
    std::string fresh;                // a 1 for each byte that was written since
    Entries entries, synced_entries;  // of a folder
    std::filesystem::perms mode = std::filesystem::perms::none, synced_mode = mode;

    void resize(std::size_t size) {
      data.resize(size, '\0');
      fresh.resize(size, '\0');
    }
    void write(std::size_t offset, const std::string& bytes) {
      if (data.size() < offset + bytes.size()) resize(offset + bytes.size());
      data.replace(offset, bytes.size(), bytes);
      fresh.replace(offset, bytes.size(), bytes.size(), '\1');
    }
    void sync() {
      synced = data;
      fresh.assign(data.size(), '\0');
      synced_entries = entries;
      synced_mode = mode;
    }
    const Entries& surviving_entries(Survival survival) const {
      return survival == Survival::strict ? synced_entries : entries;
    }
    std::string surviving_data(Survival survival, unsigned seed) const {
      constexpr std::size_t kBlock = 4096;
      if (survival == Survival::strict) return synced;
      std::string kept = data;
      if (survival == Survival::ordered) return kept;
      for (std::size_t i = 0; i < kept.size(); ++i) {
        const bool arrived = survival == Survival::blocks && (i / kBlock * 2654435761U + seed) % 7 < 4;
        if (fresh[i] != '\0' && !arrived) kept[i] = '\0';
      }
      return kept;
    }
  };

  NodePointer load(const std::filesystem::path& path) {
    auto made = std::make_shared<Node>();
    const std::filesystem::file_status status = std::filesystem::symlink_status(path);
    made->mode = status.permissions();
    if (std::filesystem::is_symlink(status)) {
      made->target = std::filesystem::read_symlink(path).string();
    } else if (std::filesystem::is_directory(status)) {
      made->is_folder = true;
      for (const auto& entry : std::filesystem::directory_iterator(path))
        made->entries[entry.path().filename().string()] = load(entry.path());
    } else {
      made->resize(std::filesystem::file_size(path));
      made->data = testing::read_all(path);
    }
    made->sync();
    return made;
  }

  // The parts of a path below the root.
  std::vector<std::string> parts(std::string_view path) const {
    if (!path.starts_with(place_)) throw std::runtime_error("outside of the folder: " + std::string(path));
    std::vector<std::string> all;
    for (const auto& part : std::filesystem::path(path.substr(place_.size())).relative_path())
      all.push_back(part.string());
    return all;
  }

  NodePointer find(std::string_view path) const {
    NodePointer at = root_;
    for (const std::string& part : parts(path)) {
      const auto found = at->entries.find(part);
      if (found == at->entries.end()) throw std::runtime_error("not there: " + std::string(path));
      at = found->second;
    }
    return at;
  }
  // A file without a name any more is followed no longer.
  Node& node(std::string_view path) { return path.ends_with(" (deleted)") ? nameless_ : *find(path); }
  Node& parent(std::string_view path) const { return *find(path.substr(0, path.rfind('/'))); }
  static std::string last(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

  void enter(const std::string& path, const NodePointer& entered) {
    parent(path).entries[last(path)] = entered;
  }
  NodePointer take(const std::string& path) {
    const NodePointer taken = find(path);
    parent(path).entries.erase(last(path));
    return taken;
  }

  static void write_node(const Node& node, const std::filesystem::path& to, Survival survival,
                         unsigned seed) {
    if (!node.target.empty()) return std::filesystem::create_symlink(node.target, to);
    if (node.is_folder) {
      std::filesystem::create_directory(to);
      for (const auto& [entry, child] : node.surviving_entries(survival))
        write_node(*child, to / entry, survival, seed);
    } else {
      std::ofstream(to, std::ios::binary) << node.surviving_data(survival, seed);
    }
    std::filesystem::permissions(to, survival == Survival::strict ? node.synced_mode : node.mode);
  }

  static void add_key(const Node& node, Survival survival, unsigned seed, std::string& all) {
    const auto mode = survival == Survival::strict ? node.synced_mode : node.mode;
    all += std::to_string(static_cast<unsigned>(mode)) + " ";
    if (node.is_folder) {
      for (const auto& [entry, child] : node.surviving_entries(survival)) {
        all += "/" + entry + "(";
        add_key(*child, survival, seed, all);
        all += ")";
      }
    } else {
      const std::string data = node.surviving_data(survival, seed);
      all += std::to_string(data.size()) + ":" + std::to_string(std::hash<std::string>{}(data)) + node.target;
    }
  }

  std::string place_;
  NodePointer root_;
  Node nameless_;
  std::string printed_;
};

}  // namespace mantissa::faults
