/* What a scan costs through the interface: fills a database with entries of a 16-byte key and a 100-byte value, in order,
 * closes it and opens it again, and walks over all of it as programs do, five times (`valid`, `key`, `value`, `next`).
 * Linked with LevelDB and with Waystation it says what either takes. argv[1] is a directory that is not there yet, argv[2]
 * the number of entries. Prints the time of the processor that each entry took. `make capi-scan` */
#define _POSIX_C_SOURCE 200809L
#include <leveldb/c.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void expect_none(char* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s\n", error);
  exit(1);
}

/* Of this thread alone, on its processor: a busy machine does not count. */
static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static leveldb_t* opened(leveldb_options_t* options, const char* name) {
  char* error = NULL;
  leveldb_t* db = leveldb_open(options, name, &error);
  expect_none(error);
  return db;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  long entries = atol(argv[2]);
  char* error = NULL;
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_t* db = opened(options, argv[1]);
  leveldb_writeoptions_t* write = leveldb_writeoptions_create();
  char key[32], value[100];
  for (long i = 0; i < entries; i++) {
    int length = snprintf(key, sizeof key, "%016ld", i);
    for (size_t at = 0; at < sizeof value; at++) value[at] = (char)((unsigned long)(i * 31 + (long)at * 17) * 2654435761u >> 13);
    leveldb_put(db, write, key, (size_t)length, value, sizeof value, &error);
    expect_none(error);
  }
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  leveldb_close(db);
  db = opened(options, argv[1]);
  leveldb_readoptions_t* read = leveldb_readoptions_create();
  for (int round = 0; round < 5; round++) {
    leveldb_iterator_t* iterator = leveldb_create_iterator(db, read);
    unsigned long bytes = 0, first = 0;
    long seen = 0;
    double began = microseconds();
    for (leveldb_iter_seek_to_first(iterator); leveldb_iter_valid(iterator); leveldb_iter_next(iterator)) {
      size_t length;
      first += (unsigned char)leveldb_iter_key(iterator, &length)[15];
      bytes += length;
      first += (unsigned char)leveldb_iter_value(iterator, &length)[0];
      bytes += length;
      seen++;
    }
    double took = microseconds() - began;
    leveldb_iter_get_error(iterator, &error);
    expect_none(error);
    printf("%ld entries, %lu bytes (%lu): %.3f us each\n", seen, bytes, first, took / (double)entries);
    leveldb_iter_destroy(iterator);
  }
  leveldb_close(db);
  leveldb_readoptions_destroy(read);
  leveldb_writeoptions_destroy(write);
  leveldb_options_destroy(options);
  return 0;
}
