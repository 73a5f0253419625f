// What a scan costs through leveldb/c.h: one class over two libraries that have that interface, loaded beside each other.
//
//   scan FIRST_LIBRARY SECOND_LIBRARY DIRECTORY ENTRIES
//
// Fills a database of either with entries of a 16-byte key and a 100-byte value, in order and in random order, and walks
// over all of it as programs do (`valid`, `key`, `value`, `next`): after the fill, opened again, compacted, and compacted
// and opened again. The two take turns, so that what else the machine does hits both. Prints the processor's time of the
// reading thread for an entry: the median of ROUNDS scans, the lowest and the highest. DIRECTORY must be empty.
// `make capi-scan`
#include <leveldb/c.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int ROUNDS = 5;

[[noreturn]] void fail(const char* told) {
  std::fprintf(stderr, "%s\n", told);
  std::exit(1);
}

void expect_none(const char* error) {
  if (error != nullptr) fail(error);
}

// A shared library's functions of leveldb/c.h.
class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) fail(dlerror());
  }

  template <class Function>
  Function* find(const char* name) const {
    void* found = dlsym(handle_, name);
    if (found == nullptr) fail(dlerror());
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* handle_;
};

#define FUNCTION(name) decltype(::leveldb_##name)* const name = find<decltype(::leveldb_##name)>("leveldb_" #name)
struct Interface : Library {
  using Library::Library;
  FUNCTION(options_create);
  FUNCTION(options_set_create_if_missing);
  FUNCTION(readoptions_create);
  FUNCTION(writeoptions_create);
  FUNCTION(open);
  FUNCTION(close);
  FUNCTION(put);
  FUNCTION(compact_range);
  FUNCTION(create_iterator);
  FUNCTION(iter_seek_to_first);
  FUNCTION(iter_valid);
  FUNCTION(iter_next);
  FUNCTION(iter_key);
  FUNCTION(iter_value);
  FUNCTION(iter_get_error);
  FUNCTION(iter_destroy);
};
#undef FUNCTION

class Database {
 public:
  Database(const Interface& library, std::string path)
      : c_(library), path_(std::move(path)), options_(c_.options_create()), read_(c_.readoptions_create()), write_(c_.writeoptions_create()) {
    c_.options_set_create_if_missing(options_, 1);
    open();
  }

  void reopen() {
    c_.close(database_);
    open();
  }

  void put(std::string_view key, std::string_view value) {
    char* error = nullptr;
    c_.put(database_, write_, key.data(), key.size(), value.data(), value.size(), &error);
    expect_none(error);
  }

  void compact() { c_.compact_range(database_, nullptr, 0, nullptr, 0); }

  template <class Visit>
  void scan(Visit visit) {
    leveldb_iterator_t* iterator = c_.create_iterator(database_, read_);
    for (c_.iter_seek_to_first(iterator); c_.iter_valid(iterator); c_.iter_next(iterator)) {
      size_t key_length, value_length;
      const char* key = c_.iter_key(iterator, &key_length);
      const char* value = c_.iter_value(iterator, &value_length);
      visit(std::string_view(key, key_length), std::string_view(value, value_length));
    }
    char* error = nullptr;
    c_.iter_get_error(iterator, &error);
    expect_none(error);
    c_.iter_destroy(iterator);
  }

 private:
  void open() {
    char* error = nullptr;
    database_ = c_.open(options_, path_.c_str(), &error);
    expect_none(error);
  }

  const Interface& c_;
  std::string path_;
  leveldb_options_t* options_;
  leveldb_readoptions_t* read_;
  leveldb_writeoptions_t* write_;
  leveldb_t* database_ = nullptr;
};

// Of this thread alone, on its processor: a busy machine does not count.
double microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void fill(Database& database, const std::vector<long>& order) {
  char key[32], value[100];
  for (long number : order) {
    const int length = std::snprintf(key, sizeof key, "%016ld", number);
    for (size_t at = 0; at < sizeof value; at++) {
      value[at] = static_cast<char>((static_cast<unsigned long>(number) * 31 + at * 17) * 2654435761u >> 13);
    }
    database.put({key, static_cast<size_t>(length)}, {value, sizeof value});
  }
}

// The time of one scan, which must see all entries, for each of them.
double timed_scan(Database& database, size_t entries) {
  size_t seen = 0;
  unsigned long bytes = 0;
  const double began = microseconds();
  database.scan([&](std::string_view key, std::string_view value) {
    seen++;
    bytes += key.size() + value.size() + static_cast<unsigned char>(key.back()) + static_cast<unsigned char>(value.front());
  });
  const double took = microseconds() - began;
  if (seen != entries || bytes < entries * 116) fail("a scan did not see all entries");
  return took / static_cast<double>(entries);
}

void compare(std::array<Database, 2>& databases, const char* order, const char* state, size_t entries) {
  std::array<std::vector<double>, 2> times;
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t which : {0, 1}) times[which].push_back(timed_scan(databases[which], entries));
  }
  std::printf("| %s, %s", order, state);
  for (auto& some : times) {
    std::sort(some.begin(), some.end());
    std::printf(" | %.3f (%.3f to %.3f)", some[ROUNDS / 2], some.front(), some.back());
  }
  std::printf(" |\n");
  std::fflush(stdout);
}

void judge(const std::array<const Interface*, 2>& libraries, const std::string& directory, const std::vector<long>& order, const char* name) {
  const std::string path = directory + "/" + name;
  std::array<Database, 2> databases = {Database(*libraries[0], path + "-1"), Database(*libraries[1], path + "-2")};
  for (auto& database : databases) fill(database, order);
  compare(databases, name, "after the fill", order.size());
  for (auto& database : databases) database.reopen();
  compare(databases, name, "opened again", order.size());
  for (auto& database : databases) database.compact();
  compare(databases, name, "compacted", order.size());
  for (auto& database : databases) database.reopen();
  compare(databases, name, "compacted, opened again", order.size());
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) fail("scan FIRST_LIBRARY SECOND_LIBRARY DIRECTORY ENTRIES");
  const Interface first(arguments[1]), second(arguments[2]);
  std::vector<long> order(std::stoul(arguments[4]));
  std::iota(order.begin(), order.end(), 0);
  std::printf("| us an entry | %s | %s |\n|---|---|---|\n", arguments[1], arguments[2]);
  judge({&first, &second}, arguments[3], order, "in order");
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  judge({&first, &second}, arguments[3], order, "in random order");
}
