// The engine with a signal for every field of its ports: what tb/machine.h drives.
module compaction_ip_sim #(
    parameter int unsigned NumInputs = 4
) (
    input  logic                clk_i,
    input  logic                rst_i,
    input  logic                csr_write_i,
    input  cip_pkg::csr_addr_t  csr_addr_i,
    input  cip_pkg::csr_data_t  csr_data_i,
    output cip_pkg::csr_data_t  csr_data_o,
    output logic                ar_valid_o,
    input  logic                ar_ready_i,
    output cip_pkg::addr_t      ar_addr_o,
    output cip_pkg::beat_t      ar_beats_less_one_o,
    input  logic                r_valid_i,
    output logic                r_ready_o,
    input  cip_pkg::word_t      r_data_i,
    input  logic                r_error_i,
    output logic                aw_valid_o,
    input  logic                aw_ready_i,
    output cip_pkg::addr_t      aw_addr_o,
    output cip_pkg::beat_t      aw_beats_less_one_o,
    output logic                w_valid_o,
    input  logic                w_ready_i,
    output cip_pkg::word_t      w_data_o,
    output logic                w_last_o,
    input  logic                b_valid_i,
    input  logic                b_error_i
);
  cip_pkg::csr_req_t csr_req;
  cip_pkg::mem_req_t mem_req;
  cip_pkg::mem_rsp_t mem_rsp;

  assign csr_req.write = csr_write_i;
  assign csr_req.addr  = csr_addr_i;
  assign csr_req.data  = csr_data_i;

  assign ar_valid_o          = mem_req.ar_valid;
  assign ar_addr_o           = mem_req.ar.addr;
  assign ar_beats_less_one_o = mem_req.ar.beats_less_one;
  assign r_ready_o           = mem_req.r_ready;
  assign aw_valid_o          = mem_req.aw_valid;
  assign aw_addr_o           = mem_req.aw.addr;
  assign aw_beats_less_one_o = mem_req.aw.beats_less_one;
  assign w_valid_o           = mem_req.w_valid;
  assign w_data_o            = mem_req.w_data;
  assign w_last_o            = mem_req.w_last;

  assign mem_rsp.ar_ready = ar_ready_i;
  assign mem_rsp.r_valid  = r_valid_i;
  assign mem_rsp.r_data   = r_data_i;
  assign mem_rsp.r_error  = r_error_i;
  assign mem_rsp.aw_ready = aw_ready_i;
  assign mem_rsp.w_ready  = w_ready_i;
  assign mem_rsp.b_valid  = b_valid_i;
  assign mem_rsp.b_error  = b_error_i;

  compaction_ip #(.NumInputs(NumInputs)) u_engine (
      .clk_i, .rst_i, .csr_req_i(csr_req), .csr_data_o, .mem_req_o(mem_req), .mem_rsp_i(mem_rsp)
  );
endmodule
