# The C interface as a library with headers and pkg-config file; included by the top Makefile.

.PHONY: capi capi-scan bindings

PREFIX ?= $(abspath $(TARGET))/capi
# What the library is built with: `release`, or `test` where tests have built it already.
CAPI_PROFILE ?= release

capi: ## The C interface: libwaystation.so and .a, headers, waystation.pc into PREFIX (target/capi)
	$(CARGO) build --locked --profile $(CAPI_PROFILE) --package waystation-capi
	crates/waystation-capi/install.sh $(TARGET)/$(if $(filter test,$(CAPI_PROFILE)),debug,$(CAPI_PROFILE)) $(PREFIX)

CAPI_SCAN_ENTRIES ?= 1000000
LEVELDB ?= libleveldb.so.1d

capi-scan: capi ## What a scan costs through the C interface, beside LevelDB's (LEVELDB= its shared library)
	$(CXX) -O2 -std=c++17 -Icrates/waystation-capi/include -o $(TARGET)/capi-scan crates/waystation-capi/benches/scan.cpp -ldl
	rm -rf $(TARGET)/capi-scan.db && mkdir $(TARGET)/capi-scan.db
	$(TARGET)/capi-scan $(PREFIX)/lib/libwaystation.so $(LEVELDB) $(TARGET)/capi-scan.db $(CAPI_SCAN_ENTRIES)
	rm -rf $(TARGET)/capi-scan.db

# Needs the network once. Says what it skips; fails if nothing ran.
bindings: ## Programs and language bindings made for LevelDB, unmodified, over the C interface
	$(MAKE) capi CAPI_PROFILE=test PREFIX=$(abspath $(TARGET))/bindings/prefix
	crates/waystation-capi/tests/bindings.sh $(abspath $(TARGET))/bindings
