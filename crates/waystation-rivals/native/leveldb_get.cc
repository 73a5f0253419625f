// LevelDB's C interface copies every value found into fresh memory, which its own db_bench does not do: there,
// one std::string is used again and again. This is that read, so that LevelDB is not charged for the interface.
#include <string>

#include "leveldb/c.h"
#include "leveldb/db.h"

// Finds `key`. Returns 1 and the value, which stays valid until this thread's next call; 0 if there is none;
// -1 and the message of the failure, under the same terms.
extern "C" int waystation_bench_leveldb_get(leveldb::DB* const* db, int verify_checksums,
                                            int fill_cache, const char* key,
                                            size_t key_length, const char** value,
                                            size_t* value_length) {
  static thread_local std::string found;
  leveldb::ReadOptions options;
  options.verify_checksums = verify_checksums != 0;
  options.fill_cache = fill_cache != 0;
  const leveldb::Status status = (*db)->Get(options, leveldb::Slice(key, key_length), &found);
  int outcome = 1;
  if (status.IsNotFound()) {
    return 0;
  }
  if (!status.ok()) {
    found = status.ToString();
    outcome = -1;
  }
  *value = found.data();
  *value_length = found.size();
  return outcome;
}
