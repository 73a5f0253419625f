# The C interface as a library with headers and pkg-config file; included by the top Makefile.

.PHONY: capi capi-scan bindings

PREFIX ?= $(abspath $(TARGET))/capi

capi: ## The C interface: libwaystation.so and .a, headers, waystation.pc into PREFIX (target/capi)
	$(CARGO) build --locked --release --package waystation-capi
	crates/waystation-capi/install.sh $(TARGET)/release $(PREFIX)

CAPI_SCAN_ENTRIES ?= 1000000
LEVELDB ?= libleveldb.so.1d

capi-scan: capi ## What a scan costs through the C interface, beside LevelDB's (LEVELDB= its shared library)
	$(CXX) -O2 -std=c++17 -Icrates/waystation-capi/include -o $(TARGET)/capi-scan crates/waystation-capi/benches/scan.cpp -ldl
	rm -rf $(TARGET)/capi-scan.db && mkdir $(TARGET)/capi-scan.db
	$(TARGET)/capi-scan $(PREFIX)/lib/libwaystation.so $(LEVELDB) $(TARGET)/capi-scan.db $(CAPI_SCAN_ENTRIES)
	rm -rf $(TARGET)/capi-scan.db

# Takes the library that the tests are built with. Needs the network once. Says what it skips; fails if nothing ran.
bindings: ## Programs and language bindings made for LevelDB, unmodified, over the C interface
	$(CARGO) test --workspace --test c_programs --locked --no-run
	crates/waystation-capi/install.sh $(TARGET)/debug/deps $(abspath $(TARGET))/bindings/prefix
	crates/waystation-capi/tests/bindings.sh $(abspath $(TARGET))/bindings
