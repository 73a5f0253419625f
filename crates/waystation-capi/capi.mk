# The C interface as a library with headers and pkg-config file; included by the top Makefile.

.PHONY: capi capi-scan bindings

PREFIX ?= $(abspath $(TARGET))/capi
# What the library is built with: `release`, or `test` where tests have built it already.
CAPI_PROFILE ?= release

capi: ## The C interface: libwaystation.so and .a, headers, waystation.pc into PREFIX (target/capi)
	$(CARGO) build --locked --profile $(CAPI_PROFILE) --package waystation-capi
	crates/waystation-capi/install.sh $(TARGET)/$(if $(filter test,$(CAPI_PROFILE)),debug,$(CAPI_PROFILE)) $(PREFIX)

CAPI_SCAN_ENTRIES ?= 1000000

capi-scan: capi ## What a scan costs through the C interface: with Waystation, and with LevelDB
	for library in waystation leveldb; do \
	  echo "$$library"; rm -rf $(TARGET)/capi-scan.db; \
	  $(CC) -O2 -std=c11 -Icrates/waystation-capi/include -o $(TARGET)/capi-scan crates/waystation-capi/benches/scan.c \
	    -L$(PREFIX)/lib -Wl,-rpath,$(PREFIX)/lib -l$$library && \
	  $(TARGET)/capi-scan $(TARGET)/capi-scan.db $(CAPI_SCAN_ENTRIES) || exit 1; \
	done; rm -rf $(TARGET)/capi-scan.db

# Needs the network once. Says what it skips; fails if nothing ran.
bindings: ## Programs and language bindings made for LevelDB, unmodified, over the C interface
	$(MAKE) capi CAPI_PROFILE=test PREFIX=$(abspath $(TARGET))/bindings/prefix
	crates/waystation-capi/tests/bindings.sh $(abspath $(TARGET))/bindings
