/* What Waystation has beyond LevelDB, and where it differs. argv[1] is a directory of its own. */
#define _POSIX_C_SOURCE 200809L
#include <waystation/c.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(condition)                                                                    \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      fprintf(stderr, "%s:%d: %s; error: %s\n", __FILE__, __LINE__, #condition, error ? error : "none"); \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)

static char* error = NULL;

static int begins(const char* text, const char* beginning) {
  return text != NULL && strncmp(text, beginning, strlen(beginning)) == 0;
}

static void forget_error(void) {
  leveldb_free(error);
  error = NULL;
}

static int compare_backwards(void* state, const char* a, size_t alen, const char* b, size_t blen) {
  (void)state, (void)a, (void)b;
  return (int)blen - (int)alen;
}

static const char* backwards_name(void* state) {
  (void)state;
  return "backwards";
}

/* Beside devices another order of keys is refused, and nothing is created; so is what needs the order of bytes. */
static void other_orders(const char* directory) {
  char name[4096];
  snprintf(name, sizeof name, "%s/ordered", directory);
  leveldb_comparator_t* comparator = leveldb_comparator_create(NULL, NULL, compare_backwards, backwards_name);
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_comparator(options, comparator);
  waystation_options_set_device_extractor(options, "until/3a", &error);
  EXPECT(error == NULL && leveldb_open(options, name, &error) == NULL);
  EXPECT(begins(error, "Invalid argument: ") && strstr(error, "backwards") != NULL);
  forget_error();
  leveldb_options_destroy(options);
  options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_compression(options, 99);
  EXPECT(leveldb_open(options, name, &error) == NULL && begins(error, "Not implemented: "));
  forget_error();
  leveldb_options_set_compression(options, 1);
  /* The directories above are created too, which LevelDB needs to be there. */
  char deep[8192];
  snprintf(deep, sizeof deep, "%s/above/it", name);
  leveldb_t* db = leveldb_open(options, deep, &error);
  EXPECT(db != NULL && error == NULL);
  leveldb_close(db);
  leveldb_options_set_create_if_missing(options, 0);
  EXPECT(leveldb_open(options, name, &error) == NULL && begins(error, "Invalid argument: "));
  forget_error();
  leveldb_options_destroy(options);
  leveldb_comparator_destroy(comparator);
}

/* Who may not write to a directory hears that, as with LevelDB, and not that there is no database in it. */
static void unwritable(void) {
  char name[] = "/tmp/waystation-unwritable-XXXXXX";
  EXPECT(mkdtemp(name) != NULL && chmod(name, 0555) == 0);
  uid_t me = geteuid();
  if (me == 0) EXPECT(seteuid(65534) == 0);
  leveldb_options_t* options = leveldb_options_create();
  EXPECT(leveldb_open(options, name, &error) == NULL);
  EXPECT(begins(error, "IO error: ") && strstr(error, "LOCK") != NULL && strstr(error, "denied") != NULL);
  forget_error();
  leveldb_options_destroy(options);
  EXPECT(seteuid(me) == 0 && rmdir(name) == 0);
}

static leveldb_t* shared;

static void* write_many(void* argument) {
  long thread = (long)argument;
  leveldb_writeoptions_t* write = leveldb_writeoptions_create();
  char* failure = NULL;
  for (int i = 0; i < 2000; i++) {
    char key[32];
    int length = snprintf(key, sizeof key, "t%ld:%05d", thread, i);
    leveldb_put(shared, write, key, length, key, length, &failure);
  }
  leveldb_writeoptions_destroy(write);
  return failure;
}

/* Several threads on one handle. */
static void threads(leveldb_t* db, leveldb_readoptions_t* read) {
  shared = db;
  pthread_t started[4];
  for (long i = 0; i < 4; i++) EXPECT(pthread_create(&started[i], NULL, write_many, (void*)i) == 0);
  for (int i = 0; i < 4; i++) {
    void* failure;
    EXPECT(pthread_join(started[i], &failure) == 0 && failure == NULL);
  }
  size_t length;
  char* value = leveldb_get(db, read, "t3:01999", 8, &length, &error);
  EXPECT(error == NULL && length == 8 && memcmp(value, "t3:01999", 8) == 0);
  leveldb_free(value);
}

static void values(leveldb_t* db, leveldb_writeoptions_t* write, leveldb_readoptions_t* read) {
  char buffer[4] = "????";
  size_t length = 99;
  EXPECT(waystation_get_into(db, read, "absent", 6, buffer, 4, &length, &error) == waystation_not_found);
  EXPECT(error == NULL && length == 0);
  leveldb_put(db, write, "car:a", 5, "123456", 6, &error);
  EXPECT(waystation_get_into(db, read, "car:a", 5, buffer, 4, &length, &error) == waystation_ok);
  EXPECT(length == 6 && memcmp(buffer, "1234", 4) == 0);
  EXPECT(waystation_get_into(db, read, "car:a", 5, NULL, 0, &length, &error) == waystation_ok && length == 6);

  leveldb_writebatch_t* batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "car:b", 5, "2", 1);
  leveldb_writebatch_put(batch, "car:c", 5, "3", 1);
  const char* bytes = waystation_writebatch_bytes(batch, &length);
  EXPECT(length > 12 && waystation_write_bytes(db, write, bytes, length, &error) == waystation_ok);
  EXPECT(waystation_write_bytes(db, write, bytes, length - 1, &error) == waystation_invalid_argument);
  EXPECT(begins(error, "Invalid argument: "));
  forget_error();
  leveldb_writebatch_append(batch, batch);
  bytes = waystation_writebatch_bytes(batch, &length);
  EXPECT(bytes[8] == 4);
  leveldb_writebatch_destroy(batch);

  leveldb_iterator_t* range = waystation_create_range_iterator(db, read, "car:", 4, "car:c", 5);
  int count = 0;
  for (leveldb_iter_seek_to_first(range); leveldb_iter_valid(range); leveldb_iter_next(range)) count++;
  EXPECT(count == 2);
  leveldb_iter_next(range); /* nowhere, and stays there */
  leveldb_iter_key(range, &length);
  EXPECT(length == 0 && !leveldb_iter_valid(range));
  waystation_iter_seek_for_prev(range, "car:az", 6);
  const char* key = leveldb_iter_key(range, &length);
  EXPECT(length == 5 && memcmp(key, "car:a", 5) == 0);
  leveldb_iter_destroy(range);

  leveldb_put(db, write, "x1", 2, "1", 1, &error);
  leveldb_put(db, write, "x2", 2, "2", 1, &error);
  leveldb_put(db, write, "x3", 2, "3", 1, &error);
  EXPECT(waystation_delete_range(db, write, "x1", 2, "x3", 2, &error) == waystation_ok);
  EXPECT(waystation_get_into(db, read, "x2", 2, NULL, 0, &length, &error) == waystation_not_found);
  EXPECT(waystation_get_into(db, read, "x3", 2, NULL, 0, &length, &error) == waystation_ok);
  EXPECT(waystation_delete_range(db, write, "x3", 2, NULL, 0, &error) == waystation_ok);
  EXPECT(waystation_get_into(db, read, "x3", 2, NULL, 0, &length, &error) == waystation_not_found);
  EXPECT(waystation_delete_range(db, write, "b", 1, "a", 1, &error) == waystation_invalid_argument);
  forget_error();

  EXPECT(waystation_put_ttl(db, write, "t", 1, "v", 1, 3600 * 1000, &error) == waystation_ok);
  EXPECT(waystation_get_into(db, read, "t", 1, NULL, 0, &length, &error) == waystation_ok);
  EXPECT(waystation_put_ttl(db, write, "t", 1, "v", 1, 1, &error) == waystation_ok);
  const struct timespec while_it_lives = {.tv_nsec = 2 * 1000 * 1000};
  thrd_sleep(&while_it_lives, NULL);
  EXPECT(waystation_get_into(db, read, "t", 1, NULL, 0, &length, &error) == waystation_not_found);
  EXPECT(waystation_put_ttl(db, write, "t", 1, "v", 1, 0, &error) == waystation_invalid_argument);
  forget_error();
  EXPECT(waystation_put_ttl(db, write, "t", 1, "v", 1, -5, &error) == waystation_invalid_argument);
  EXPECT(begins(error, "Invalid argument"));
  forget_error();
  EXPECT(waystation_put_ttl(db, write, "car:t", 5, "v", 1, 5, &error) == waystation_invalid_argument);
  forget_error();
}

static void devices(leveldb_t* db, leveldb_writeoptions_t* write, leveldb_readoptions_t* read) {
  size_t length;
  char* json = waystation_devices_json(db, &error);
  EXPECT(json != NULL && strstr(json, "\"level\":\"upper\"") != NULL);
  leveldb_free(json);
  EXPECT(waystation_settle(db, "car", 3, &error) == waystation_ok);
  char* value = leveldb_get(db, read, "car:a", 5, &length, &error);
  EXPECT(length == 6);
  leveldb_free(value);
  EXPECT(waystation_depart(db, "car", 3, &error) == waystation_ok);
  EXPECT(leveldb_get(db, read, "car:a", 5, &length, &error) == NULL && error == NULL);
  EXPECT(waystation_depart(db, "car", 3, &error) == waystation_not_found && begins(error, "NotFound: "));
  forget_error();
  EXPECT(waystation_depart(db, "c:r", 3, &error) == waystation_invalid_argument);
  forget_error();
  leveldb_put(db, write, "car:a", 5, "back", 4, &error);
  EXPECT(error == NULL);
}

/* Two backups, restored; what is wrong with a backup or a call is told. */
static void backups(leveldb_t* db, const char* directory, leveldb_writeoptions_t* write, leveldb_readoptions_t* read,
                    const leveldb_options_t* options) {
  char kept[4096], restored[4096], absent[4096];
  snprintf(kept, sizeof kept, "%s/backups", directory);
  snprintf(restored, sizeof restored, "%s/restored", directory);
  snprintf(absent, sizeof absent, "%s/absent", directory);
  EXPECT(waystation_backups_json(absent, &error) == NULL && begins(error, "NotFound: "));
  EXPECT(waystation_restore(absent, 0, restored, &error) == waystation_not_found);
  forget_error();
  EXPECT(waystation_backups_json(directory, &error) == NULL && begins(error, "Invalid argument: "));
  forget_error();

  uint64_t number = 0;
  leveldb_put(db, write, "kept", 4, "first", 5, &error);
  EXPECT(waystation_put_ttl(db, write, "for hours", 9, "v", 1, 3600 * 1000, &error) == waystation_ok);
  EXPECT(waystation_put_ttl(db, write, "for a moment", 12, "v", 1, 1, &error) == waystation_ok);
  EXPECT(waystation_backup(db, kept, &number, &error) == waystation_ok && number == 1);
  leveldb_put(db, write, "kept", 4, "second", 6, &error);
  EXPECT(waystation_backup(db, kept, NULL, &error) == waystation_ok && error == NULL);
  EXPECT(waystation_backup(db, directory, &number, &error) == waystation_invalid_argument && number == 1);
  forget_error();

  char* json = waystation_backups_json(kept, &error);
  EXPECT(json != NULL && strstr(json, "\"number\":2") != NULL && strstr(json, "\"damaged\":[]") != NULL);
  leveldb_free(json);
  json = waystation_backups_verify_json(kept, 0, &error);
  EXPECT(json != NULL && strstr(json, "\"backups\":2") != NULL && strstr(json, "\"problems\":[]") != NULL);
  leveldb_free(json);
  json = waystation_backups_verify_json(kept, 1, &error);
  EXPECT(json != NULL && strstr(json, "\"backups\":1") != NULL);
  leveldb_free(json);
  EXPECT(waystation_backups_verify_json(kept, 3, &error) == NULL && begins(error, "Invalid argument: "));
  forget_error();

  EXPECT(waystation_restore(kept, 1, restored, &error) == waystation_ok);
  EXPECT(waystation_restore(kept, 1, restored, &error) == waystation_invalid_argument);
  forget_error();
  leveldb_t* older = leveldb_open(options, restored, &error);
  EXPECT(older != NULL);
  size_t length;
  char* value = leveldb_get(older, read, "kept", 4, &length, &error);
  EXPECT(length == 5 && memcmp(value, "first", 5) == 0);
  leveldb_free(value);
  EXPECT(waystation_get_into(older, read, "for hours", 9, NULL, 0, &length, &error) == waystation_ok);
  EXPECT(waystation_get_into(older, read, "for a moment", 12, NULL, 0, &length, &error) == waystation_not_found);
  EXPECT(waystation_close(older, &error) == waystation_ok);

  EXPECT(waystation_backups_prune(kept, 0, &error) == waystation_invalid_argument);
  forget_error();
  EXPECT(waystation_backups_prune(kept, 1, &error) == waystation_ok);
  EXPECT(waystation_restore(kept, 1, absent, &error) == waystation_invalid_argument);
  forget_error();
  EXPECT(waystation_restore(kept, 0, absent, &error) == waystation_ok);
}

/* Removes the files of a directory whose names begin so. */
static void lose(const char* dir, const char* beginning) {
  char command[8192];
  snprintf(command, sizeof command, "rm '%s/%s'*", dir, beginning);
  EXPECT(system(command) == 0);
}

static void repairs(const char* root, leveldb_writeoptions_t* write, leveldb_readoptions_t* read) {
  char name[4096], target[4096], kept[4200];
  snprintf(name, sizeof name, "%s/broken", root);
  snprintf(target, sizeof target, "%s/mended", root);
  snprintf(kept, sizeof kept, "%s.before-repair/journal.ring", name);
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_repair_db(options, name, &error);
  EXPECT(error != NULL);
  forget_error();
  leveldb_t* db = leveldb_open(options, name, &error);
  EXPECT(db != NULL);
  leveldb_put(db, write, "a", 1, "1", 1, &error);
  EXPECT(waystation_flush(db, &error) == waystation_ok);
  leveldb_put(db, write, "b", 1, "2", 1, &error);
  EXPECT(waystation_close(db, &error) == waystation_ok);
  lose(name, "MANIFEST");
  db = leveldb_open(options, name, &error);
  EXPECT(db == NULL);
  forget_error();

  char* report = waystation_repair_json(options, name, target, 0, &error);
  EXPECT(report == NULL && strncmp(error, "Corruption: ", 12) == 0 && strstr(error, "MANIFEST") != NULL);
  forget_error();
  report = waystation_repair_json(options, name, target, 1, &error);
  EXPECT(report != NULL && strstr(report, "\"entries\":2") != NULL && strstr(report, "MANIFEST") != NULL);
  leveldb_free(report);
  leveldb_repair_db(options, name, &error);
  EXPECT(error == NULL);
  FILE* ring = fopen(kept, "r");
  EXPECT(ring != NULL);
  fclose(ring);
  const char* both[] = {name, target};
  for (int i = 0; i < 2; i++) {
    db = leveldb_open(options, both[i], &error);
    EXPECT(db != NULL);
    size_t length;
    char* value = leveldb_get(db, read, "b", 1, &length, &error);
    EXPECT(length == 1 && value[0] == '2');
    leveldb_free(value);
    leveldb_close(db);
  }
  leveldb_options_destroy(options);
}

/* A directory on a faster device. */
static void fast_directory(const char* directory) {
  char name[4096], fast[4096];
  snprintf(name, sizeof name, "%s/tiered", directory);
  snprintf(fast, sizeof fast, "%s/fast", directory);
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  waystation_options_set_fast_directory(options, fast, 1);
  EXPECT(leveldb_open(options, name, &error) == NULL);
  EXPECT(error != NULL && strstr(error, "fast directory") != NULL);
  forget_error();
  waystation_options_set_fast_directory(options, fast, 1 << 20);
  leveldb_t* db = leveldb_open(options, name, &error);
  EXPECT(db != NULL);
  char* stats = waystation_stats_json(db, &error);
  EXPECT(stats != NULL && strstr(stats, "\"capacity_bytes\":1048576") != NULL);
  leveldb_free(stats);
  leveldb_close(db);
  waystation_options_set_fast_directory(options, fast, 1 << 20);
  waystation_options_set_fast_durable(options, 1);
  db = leveldb_open(options, name, &error);
  EXPECT(db != NULL);
  stats = waystation_stats_json(db, &error);
  EXPECT(stats != NULL && strstr(stats, "\"quota_bytes\":1048576") != NULL);
  leveldb_free(stats);
  leveldb_close(db);
  leveldb_options_destroy(options);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  unwritable();
  fast_directory(argv[1]);
  other_orders(argv[1]);
  char name[4096], copy[4096], plain[4096];
  snprintf(name, sizeof name, "%s/db", argv[1]);
  snprintf(copy, sizeof copy, "%s/copy", argv[1]);
  snprintf(plain, sizeof plain, "%s/plain", argv[1]);
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_writeoptions_t* write = leveldb_writeoptions_create();
  leveldb_readoptions_t* read = leveldb_readoptions_create();

  EXPECT(waystation_options_set_device_extractor(options, "nonsense", &error) == waystation_invalid_argument);
  forget_error();
  EXPECT(waystation_options_set_device_extractor(options, "until/3a", &error) == waystation_ok);
  waystation_options_set_residency_ms(options, 3600000);
  leveldb_t* db = leveldb_open(options, name, &error);
  EXPECT(db != NULL);
  values(db, write, read);
  devices(db, write, read);
  threads(db, read);
  backups(db, argv[1], write, read, options);
  EXPECT(waystation_sync(db, &error) == waystation_ok);
  EXPECT(waystation_flush(db, &error) == waystation_ok);
  EXPECT(waystation_wait_idle(db, &error) == waystation_ok);
  char* report = waystation_check_json(db, &error);
  EXPECT(report != NULL && strstr(report, "\"problems\":[]") != NULL);
  leveldb_free(report);
  char* stats = waystation_stats_json(db, &error);
  EXPECT(stats != NULL && strstr(stats, "\"failure\":null") != NULL);
  leveldb_free(stats);
  stats = leveldb_property_value(db, "waystation.stats");
  EXPECT(stats != NULL && stats[0] == '{');
  leveldb_free(stats);
  EXPECT(waystation_export_leveldb(db, plain, 1, &error) == waystation_ok);
  EXPECT(waystation_export_leveldb(db, plain, 1, &error) == waystation_invalid_argument);
  forget_error();
  EXPECT(waystation_close(db, &error) == waystation_ok);

  /* What was exported is a database without devices. */
  leveldb_options_t* simple = leveldb_options_create();
  db = leveldb_open(simple, plain, &error);
  EXPECT(db != NULL);
  EXPECT(waystation_checkpoint(db, copy, &error) == waystation_ok);
  EXPECT(waystation_depart(db, "car", 3, &error) == waystation_invalid_argument);
  forget_error();
  EXPECT(waystation_close(db, &error) == waystation_ok);
  db = leveldb_open(simple, copy, &error);
  EXPECT(db != NULL);
  size_t length;
  char* value = leveldb_get(db, read, "car:a", 5, &length, &error);
  EXPECT(length == 4 && memcmp(value, "back", 4) == 0);
  leveldb_free(value);
  leveldb_close(db);

  repairs(argv[1], write, read);

  leveldb_readoptions_destroy(read);
  leveldb_writeoptions_destroy(write);
  leveldb_options_destroy(simple);
  leveldb_options_destroy(options);
  printf("done\n");
  return 0;
}
