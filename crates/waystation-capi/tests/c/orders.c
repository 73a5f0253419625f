/* Databases in orders of the program's own, as LevelDB has them: linked with LevelDB and with Waystation it prints the
 * same, and each reads what the other wrote. argv[1] is a directory; argv[2] says "write" or "read". */
#include <leveldb/c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 3000

static char* error = NULL;

static void print_error(const char* what) {
  const char* end = error == NULL ? NULL : strchr(error, ':');
  printf("%s: %.*s\n", what, end == NULL ? 4 : (int)(end - error), error == NULL ? "fine" : error);
  leveldb_free(error);
  error = NULL;
}

/* Bytes, backwards. */
static int compare_backwards(void* state, const char* a, size_t alen, const char* b, size_t blen) {
  (void)state;
  size_t shorter = alen < blen ? alen : blen;
  int order = memcmp(b, a, shorter);
  return order != 0 ? order : alen < blen ? 1 : alen > blen ? -1 : 0;
}

/* Decimal numbers: of any length, and with zeros in front one key as without. */
static int compare_numbers(void* state, const char* a, size_t alen, const char* b, size_t blen) {
  (void)state;
  while (alen > 0 && *a == '0') a++, alen--;
  while (blen > 0 && *b == '0') b++, blen--;
  if (alen != blen) return alen < blen ? -1 : 1;
  return memcmp(a, b, alen);
}

static const char* name_of(void* state) { return (const char*)state; }

static void destroyed(void* state) { printf("destructor of %s\n", (const char*)state); }

static unsigned digest;

static void digest_bytes(const char* bytes, size_t length) {
  for (size_t i = 0; i < length; i++) digest = digest * 31 + (unsigned char)bytes[i];
  digest = digest * 31 + (unsigned)length;
}

static void print_here(const leveldb_iterator_t* iterator, const char* what) {
  size_t length, value_length;
  if (!leveldb_iter_valid(iterator)) {
    printf("%s: nowhere\n", what);
    return;
  }
  const char* key = leveldb_iter_key(iterator, &length);
  const char* value = leveldb_iter_value(iterator, &value_length);
  printf("%s: %.*s = %.*s\n", what, (int)length, key, value_length > 20 ? 20 : (int)value_length, value);
}

static void digest_here(const leveldb_iterator_t* iterator) {
  size_t length;
  const char* bytes = leveldb_iter_key(iterator, &length);
  digest_bytes(bytes, length);
  bytes = leveldb_iter_value(iterator, &length);
  digest_bytes(bytes, length);
}

/* Everything, forward and backward, and what cursors come to that are sent somewhere. */
static void scan(leveldb_t* db, const leveldb_snapshot_t* snapshot) {
  leveldb_readoptions_t* read = leveldb_readoptions_create();
  leveldb_readoptions_set_snapshot(read, snapshot);
  leveldb_iterator_t* iterator = leveldb_create_iterator(db, read);
  int count = 0;
  digest = 0;
  for (leveldb_iter_seek_to_first(iterator); leveldb_iter_valid(iterator); leveldb_iter_next(iterator)) {
    if (count++ % 500 == 0) print_here(iterator, "forward");
    digest_here(iterator);
  }
  printf("%d entries, %u\n", count, digest);
  digest = 0;
  for (leveldb_iter_seek_to_last(iterator); leveldb_iter_valid(iterator); leveldb_iter_prev(iterator)) {
    if (count-- % 500 == 0) print_here(iterator, "backward");
    digest_here(iterator);
  }
  printf("%d left, %u\n", count, digest);
  const char* sought[] = {"", "0", "7", "007", "1500", "0001500", "2999", "9999", "a"};
  for (size_t i = 0; i < sizeof sought / sizeof *sought; i++) {
    printf("seek %s\n", sought[i]);
    leveldb_iter_seek(iterator, sought[i], strlen(sought[i]));
    print_here(iterator, "  at");
    if (leveldb_iter_valid(iterator)) leveldb_iter_prev(iterator);
    print_here(iterator, "  before");
    if (leveldb_iter_valid(iterator)) leveldb_iter_next(iterator);
    print_here(iterator, "  again");
    size_t length;
    char* value = leveldb_get(db, read, sought[i], strlen(sought[i]), &length, &error);
    printf("  get: %.*s\n", value == NULL ? 4 : length > 20 ? 20 : (int)length, value == NULL ? "none" : value);
    leveldb_free(value);
  }
  leveldb_iter_get_error(iterator, &error);
  print_error("scan");
  leveldb_iter_destroy(iterator);
  leveldb_readoptions_destroy(read);
}

static void put(leveldb_t* db, leveldb_writeoptions_t* write, const char* key, int number, const char* what) {
  char value[200];
  int length = snprintf(value, sizeof value, "%s %d %0100d", what, number, number);
  leveldb_put(db, write, key, strlen(key), value, length, &error);
}

static void fill(leveldb_t* db) {
  leveldb_writeoptions_t* write = leveldb_writeoptions_create();
  char key[32];
  for (int i = 0; i < ENTRIES; i++) {
    int number = (int)((long)i * 7919 % ENTRIES);
    snprintf(key, sizeof key, "%d", number);
    put(db, write, key, number, "first");
  }
  const leveldb_snapshot_t* snapshot = leveldb_create_snapshot(db);
  for (int number = 0; number < ENTRIES; number += 3) {
    snprintf(key, sizeof key, number % 2 == 0 ? "%d" : "%06d", number);
    leveldb_delete(db, write, key, strlen(key), &error);
  }
  for (int number = 0; number < ENTRIES; number += 7) {
    snprintf(key, sizeof key, "%05d", number);
    put(db, write, key, number, "second");
  }
  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "1500", 4, "in a batch", 10);
  leveldb_writebatch_delete(batch, "2", 1);
  leveldb_writebatch_put(batch, "", 0, "of the empty key", 16);
  leveldb_write(db, write, batch, &error);
  leveldb_writebatch_destroy(batch);
  print_error("writes");
  scan(db, NULL);
  scan(db, snapshot);
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  scan(db, NULL);
  scan(db, snapshot);
  leveldb_release_snapshot(db, snapshot);
  leveldb_compact_range(db, "100", 3, NULL, 0);
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  scan(db, NULL);
  leveldb_writeoptions_destroy(write);
}

typedef int Compare(void*, const char*, size_t, const char*, size_t);

static void visit(const char* directory, int writes, char* name, Compare* compare) {
  printf("== %s\n", name);
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  leveldb_comparator_t* comparator = leveldb_comparator_create(name, destroyed, compare, name_of);
  leveldb_comparator_t* other = leveldb_comparator_create("test.another", destroyed, compare, name_of);
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_write_buffer_size(options, 64 << 10);
  leveldb_options_set_create_if_missing(options, writes);
  leveldb_options_set_comparator(options, comparator);
  leveldb_t* db = leveldb_open(options, path, &error);
  print_error("open");
  if (db == NULL) exit(1);
  if (writes) {
    fill(db);
  } else {
    scan(db, NULL);
  }
  leveldb_close(db);
  leveldb_options_set_comparator(options, other);
  db = leveldb_open(options, path, &error);
  printf("with another: %s\n", db == NULL ? "null" : "handle");
  print_error("open");
  leveldb_options_t* plain = leveldb_options_create();
  db = leveldb_open(plain, path, &error);
  leveldb_options_destroy(plain);
  printf("with none: %s\n", db == NULL ? "null" : "handle");
  print_error("open");
  leveldb_options_set_comparator(options, comparator);
  db = leveldb_open(options, path, &error);
  print_error("open again");
  if (db == NULL) exit(1);
  scan(db, NULL);
  leveldb_close(db);
  leveldb_options_destroy(options);
  leveldb_comparator_destroy(comparator);
  leveldb_comparator_destroy(other);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int writes = strcmp(argv[2], "write") == 0;
  visit(argv[1], writes, "test.backwards", compare_backwards);
  visit(argv[1], writes, "test.numbers", compare_numbers);
  printf("done\n");
  return 0;
}
