/* A fleet of devices in C: they write, one departs, what is left is read. Build with
 *   cc fleet.c $(pkg-config --cflags --libs waystation) -o fleet */
#include <waystation/c.h>

#include <stdio.h>
#include <stdlib.h>

static void check(char* error) {
  if (error != NULL) {
    fprintf(stderr, "%s\n", error);
    exit(1);
  }
}

int main(int argc, char** argv) {
  const char* directory = argc > 1 ? argv[1] : "fleet.db";
  char* error = NULL;
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  waystation_options_set_device_extractor(options, "until/3a", &error);
  check(error);
  leveldb_t* db = leveldb_open(options, directory, &error);
  check(error);

  leveldb_writeoptions_t* write = leveldb_writeoptions_create();
  for (int device = 0; device < 3; device++) {
    for (int i = 0; i < 4; i++) {
      char key[32], value[32];
      int klen = snprintf(key, sizeof key, "drone%d:%04d", device, i);
      int vlen = snprintf(value, sizeof value, "%d m", 100 + i);
      leveldb_put(db, write, key, klen, value, vlen, &error);
      check(error);
    }
  }
  waystation_depart(db, "drone1", 6, &error);
  check(error);

  leveldb_readoptions_t* read = leveldb_readoptions_create();
  leveldb_iterator_t* cursor = waystation_create_range_iterator(db, read, "drone", 5, NULL, 0);
  int entries = 0;
  for (leveldb_iter_seek_to_first(cursor); leveldb_iter_valid(cursor); leveldb_iter_next(cursor)) {
    size_t klen, vlen;
    const char* key = leveldb_iter_key(cursor, &klen);
    const char* value = leveldb_iter_value(cursor, &vlen);
    printf("%.*s = %.*s\n", (int)klen, key, (int)vlen, value);
    entries++;
  }
  leveldb_iter_get_error(cursor, &error);
  check(error);
  leveldb_iter_destroy(cursor);

  leveldb_readoptions_destroy(read);
  leveldb_writeoptions_destroy(write);
  leveldb_options_destroy(options);
  waystation_close(db, &error);
  check(error);
  return entries == 8 ? 0 : 1;
}
