/* Calls every function of <leveldb/c.h> and prints what it observes. Linked once with LevelDB and once with Waystation,
 * it must print the same. argv[1] is a directory of its own. */
#include <leveldb/c.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char* error = NULL;

/* The kind of the last error: what stands before the first colon. */
static void print_error(const char* what) {
  if (error == NULL) {
    printf("%s: ok\n", what);
    return;
  }
  const char* colon = strchr(error, ':');
  printf("%s: %.*s\n", what, colon ? (int)(colon - error) : 20, error);
  leveldb_free(error);
  error = NULL;
}

static void print_bytes(const char* bytes, size_t length) {
  for (size_t i = 0; i < length; i++) {
    unsigned char byte = (unsigned char)bytes[i];
    printf(byte >= 33 && byte < 127 ? "%c" : "<%02x>", byte);
  }
}

static void get(leveldb_t* db, leveldb_readoptions_t* options, const char* key, size_t length) {
  size_t vallen = 77;
  char* value = leveldb_get(db, options, key, length, &vallen, &error);
  printf("get ");
  print_bytes(key, length);
  printf(" -> ");
  if (value == NULL) {
    printf("null %zu", vallen);
  } else {
    printf("%zu ", vallen);
    print_bytes(value, vallen > 40 ? 40 : vallen);
  }
  printf("\n");
  print_error("  error");
  free(value);
}

static void entry(leveldb_iterator_t* iterator) {
  if (!leveldb_iter_valid(iterator)) {
    printf("  nowhere\n");
    return;
  }
  size_t klen, vlen;
  const char* key = leveldb_iter_key(iterator, &klen);
  const char* value = leveldb_iter_value(iterator, &vlen);
  printf("  ");
  print_bytes(key, klen);
  printf(" = ");
  print_bytes(value, vlen > 20 ? 20 : vlen);
  printf("\n");
}

static void scan(leveldb_t* db, leveldb_readoptions_t* options) {
  leveldb_iterator_t* iterator = leveldb_create_iterator(db, options);
  printf("scan\n");
  entry(iterator);
  for (leveldb_iter_seek_to_first(iterator); leveldb_iter_valid(iterator); leveldb_iter_next(iterator)) entry(iterator);
  printf("back\n");
  for (leveldb_iter_seek_to_last(iterator); leveldb_iter_valid(iterator); leveldb_iter_prev(iterator)) entry(iterator);
  const char* targets[] = {"", "b", "bb", "empty", "zzz"};
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
    printf("seek %s\n", targets[i]);
    leveldb_iter_seek(iterator, targets[i], strlen(targets[i]));
    entry(iterator);
    if (leveldb_iter_valid(iterator)) {
      leveldb_iter_prev(iterator);
      entry(iterator);
    }
  }
  leveldb_iter_get_error(iterator, &error);
  print_error("cursor");
  leveldb_iter_destroy(iterator);
}

static void on_put(void* state, const char* k, size_t klen, const char* v, size_t vlen) {
  printf("  %s put ", (const char*)state);
  print_bytes(k, klen);
  printf(" ");
  print_bytes(v, vlen);
  printf("\n");
}

static void on_delete(void* state, const char* k, size_t klen) {
  printf("  %s delete ", (const char*)state);
  print_bytes(k, klen);
  printf("\n");
}

static int compare(void* state, const char* a, size_t alen, const char* b, size_t blen) {
  (void)state;
  size_t shorter = alen < blen ? alen : blen;
  int order = memcmp(a, b, shorter);
  return order != 0 ? order : alen < blen ? -1 : alen > blen;
}

static const char* comparator_name(void* state) {
  (void)state;
  return "leveldb.BytewiseComparator";
}

static const char* policy_name(void* state) {
  (void)state;
  return "always";
}

/* A filter that rules nothing out. */
static char* create_filter(void* state, const char* const* keys, const size_t* lengths, int count, size_t* length) {
  (void)state, (void)keys, (void)lengths, (void)count;
  *length = 4;
  return memcpy(malloc(4), "true", 4);
}

static uint8_t may_match(void* state, const char* key, size_t length, const char* filter, size_t filter_length) {
  (void)state, (void)key, (void)length, (void)filter, (void)filter_length;
  return 1;
}

static void destroyed(void* state) { printf("destructor of %s\n", (const char*)state); }

static void print_property(leveldb_t* db, const char* name, int whole) {
  char* value = leveldb_property_value(db, name);
  printf("property %s: %s\n", name, value == NULL ? "null" : whole ? value : strlen(value) > 0 ? "text" : "empty");
  leveldb_free(value);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  char name[4096];
  snprintf(name, sizeof name, "%s/db", argv[1]);
  printf("version %d.%d\n", leveldb_major_version(), leveldb_minor_version());

  leveldb_env_t* env = leveldb_create_default_env();
  char* directory = leveldb_env_get_test_directory(env);
  printf("test directory %s\n", directory == NULL ? "null" : directory);
  leveldb_free(directory);

  leveldb_comparator_t* comparator = leveldb_comparator_create("comparator", destroyed, compare, comparator_name);
  leveldb_filterpolicy_t* policy = leveldb_filterpolicy_create("policy", destroyed, create_filter, may_match, policy_name);
  leveldb_filterpolicy_t* bloom = leveldb_filterpolicy_create_bloom(10);
  leveldb_cache_t* cache = leveldb_cache_create_lru(1 << 20);
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_comparator(options, comparator);
  leveldb_options_set_filter_policy(options, policy);
  leveldb_options_set_env(options, env);
  leveldb_options_set_info_log(options, NULL);
  leveldb_options_set_cache(options, cache);
  leveldb_options_set_paranoid_checks(options, 1);
  leveldb_options_set_write_buffer_size(options, 100000);
  leveldb_options_set_max_open_files(options, 100);
  leveldb_options_set_block_size(options, 1024);
  leveldb_options_set_block_restart_interval(options, 8);
  leveldb_options_set_max_file_size(options, 3 << 20);
  leveldb_options_set_compression(options, leveldb_no_compression);

  /* An error takes the place of an older one, which is freed. */
  error = malloc(6);
  memcpy(error, "older", 6);
  leveldb_t* db = leveldb_open(options, name, &error);
  printf("open without a database: %s\n", db == NULL ? "null" : "handle");
  print_error("open");
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_destroy_db(options, name, &error);
  print_error("destroy nothing");
  db = leveldb_open(options, name, &error);
  print_error("open");

  leveldb_writeoptions_t* write = leveldb_writeoptions_create();
  leveldb_writeoptions_t* synced = leveldb_writeoptions_create();
  leveldb_writeoptions_set_sync(synced, 1);
  leveldb_readoptions_t* read = leveldb_readoptions_create();
  leveldb_readoptions_set_verify_checksums(read, 1);
  leveldb_readoptions_set_fill_cache(read, 0);

  get(db, read, "absent", 6);
  leveldb_put(db, write, "empty", 5, "", 0, &error);
  leveldb_put(db, write, "", 0, "of the empty key", 16, &error);
  leveldb_put(db, synced, "a\0b", 3, "zero\0inside", 11, &error);
  leveldb_put(db, synced, "gone", 4, "x", 1, &error);
  leveldb_delete(db, write, "gone", 4, &error);
  leveldb_delete(db, synced, "never there", 11, &error);
  print_error("writes");
  get(db, read, "empty", 5);
  get(db, read, "", 0);
  get(db, read, "a\0b", 3);
  get(db, read, "a", 1);
  get(db, read, "gone", 4);

  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "lost", 4, "x", 1);
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_put(batch, "b", 1, "1", 1);
  leveldb_writebatch_put(batch, "c", 1, "2", 1);
  leveldb_writebatch_delete(batch, "b", 1);
  leveldb_writebatch_put(batch, "b", 1, "3", 1);
  leveldb_writebatch_t* more = leveldb_writebatch_create();
  leveldb_writebatch_put(more, "d", 1, "", 0);
  leveldb_writebatch_append(batch, more);
  leveldb_writebatch_iterate(batch, "batch", on_put, on_delete);
  leveldb_write(db, write, batch, &error);
  leveldb_write(db, synced, more, &error);
  leveldb_writebatch_clear(more);
  leveldb_writebatch_iterate(more, "cleared", on_put, on_delete);
  leveldb_write(db, write, more, &error);
  print_error("batches");
  leveldb_writebatch_destroy(more);
  leveldb_writebatch_destroy(batch);
  scan(db, read);

  const leveldb_snapshot_t* snapshot = leveldb_create_snapshot(db);
  leveldb_put(db, write, "b", 1, "later", 5, &error);
  leveldb_delete(db, write, "c", 1, &error);
  leveldb_iterator_t* early = leveldb_create_iterator(db, read);
  leveldb_put(db, write, "e", 1, "latest", 6, &error);
  leveldb_readoptions_set_snapshot(read, snapshot);
  printf("at the snapshot\n");
  get(db, read, "b", 1);
  get(db, read, "c", 1);
  get(db, read, "e", 1);
  scan(db, read);
  leveldb_readoptions_set_snapshot(read, NULL);
  printf("a cursor from before\n");
  leveldb_iter_seek(early, "d", 1);
  entry(early);
  leveldb_iter_next(early);
  entry(early);
  leveldb_iter_destroy(early);
  leveldb_release_snapshot(db, snapshot);
  get(db, read, "b", 1);

  /* A value larger than a memtable. */
  size_t large = 300000;
  char* value = malloc(large);
  memset(value, 'v', large);
  leveldb_put(db, write, "large", 5, value, large, &error);
  print_error("large value");
  get(db, read, "large", 5);
  free(value);

  for (int i = 0; i < 20000; i++) {
    char key[32], text[128];
    int klen = snprintf(key, sizeof key, "k%06d", i);
    int vlen = snprintf(text, sizeof text, "value %d of a hundred bytes or so, to have some that can be measured...........", i);
    leveldb_put(db, write, key, klen, text, vlen, &error);
  }
  print_error("many");
  const char* starts[] = {"k000000", "k010000", "x"};
  const char* limits[] = {"k020000", "k020000", "y"};
  size_t lengths[] = {7, 7, 1};
  uint64_t sizes[3] = {7, 7, 7};
  leveldb_compact_range(db, "k", 1, "l", 1);
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  leveldb_approximate_sizes(db, 3, starts, lengths, limits, lengths, sizes);
  printf("sizes: %d %d %" PRIu64 "\n", sizes[0] > 1000000 && sizes[0] < 2500000,
         sizes[1] > sizes[0] / 3 && sizes[1] < sizes[0] * 2 / 3, sizes[2]);
  print_property(db, "leveldb.num-files-at-level0", 1);
  print_property(db, "leveldb.num-files-at-level7", 1);
  print_property(db, "leveldb.num-files-at-level", 1);
  print_property(db, "leveldb.num-files-at-levelx", 1);
  print_property(db, "leveldb.stats", 0);
  print_property(db, "leveldb.sstables", 0);
  print_property(db, "leveldb.approximate-memory-usage", 0);
  print_property(db, "leveldb.nothing", 1);
  print_property(db, "stats", 1);
  print_property(db, "", 1);

  db = (leveldb_open(options, name, &error) == NULL) ? db : NULL;
  print_error("open once more");
  leveldb_destroy_db(options, name, &error);
  print_error("destroy while open");
  leveldb_close(db);

  leveldb_options_set_error_if_exists(options, 1);
  db = leveldb_open(options, name, &error);
  printf("open what exists: %s\n", db == NULL ? "null" : "handle");
  print_error("open");
  leveldb_options_set_error_if_exists(options, 0);
  leveldb_options_set_filter_policy(options, bloom);
  leveldb_options_set_compression(options, leveldb_snappy_compression);
  leveldb_repair_db(options, name, &error);
  print_error("repair");
  db = leveldb_open(options, name, &error);
  print_error("open again");
  leveldb_readoptions_set_fill_cache(read, 1);
  get(db, read, "b", 1);
  get(db, read, "k019999", 7);
  get(db, read, "k020000", 7);
  leveldb_close(db);
  leveldb_destroy_db(options, name, &error);
  print_error("destroy");
  leveldb_options_set_create_if_missing(options, 0);
  db = leveldb_open(options, name, &error);
  print_error("open what was destroyed");

  leveldb_readoptions_destroy(read);
  leveldb_writeoptions_destroy(synced);
  leveldb_writeoptions_destroy(write);
  leveldb_options_destroy(options);
  leveldb_cache_destroy(cache);
  leveldb_filterpolicy_destroy(bloom);
  leveldb_filterpolicy_destroy(policy);
  leveldb_comparator_destroy(comparator);
  leveldb_env_destroy(env);
  printf("done\n");
  return 0;
}
