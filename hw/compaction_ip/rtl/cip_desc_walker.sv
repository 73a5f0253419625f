// Walks the descriptors: one list of tables per input, one list of blocks per table. One walker serves all inputs.
//
// Every descriptor carries a CRC-32C over its own bytes, its place in its list and (for tables) its input, so that
// neither a flipped bit nor a descriptor of somewhere else passes. The blocks found are queued two deep per input for
// the burst issuer; after the last one an end mark is queued. The layout of descriptors is in docs/design/compaction-engine.md.
module cip_desc_walker #(
    parameter int unsigned NumInputs = 4
) (
    input  logic                    clk_i,
    input  logic                    rst_i,
    input  logic                    running_i,
    // the lists, written through the registers while nothing runs
    input  cip_pkg::list_write_t    list_write_i,
    // descriptor reads
    output logic                    desc_req_valid_o,
    input  logic                    desc_req_ready_i,
    output cip_pkg::desc_req_t      desc_req_o,
    input  logic                    desc_rsp_valid_i,
    input  cip_pkg::desc_rsp_t      desc_rsp_i,
    // the queues of blocks; the oldest of `block_select_i` is visible
    output logic [NumInputs-1:0]    block_valid_o,
    input  cip_pkg::input_id_t      block_select_i,
    output cip_pkg::block_ref_t     block_o,
    input  logic [NumInputs-1:0]    block_pop_i,
    // counters and errors
    output logic                    block_found_o,
    output cip_pkg::block_sum_t     block_bytes_o,
    output logic                    error_valid_o,
    output cip_pkg::error_t         error_o
);
  localparam int unsigned OrdinalWidth = 16;     // of tables in a list
  localparam int unsigned TableDescBytes = 32;
  localparam int unsigned BlockDescWords = 2;
  localparam logic [23:0] TableMark = 24'h574154;
  typedef logic [OrdinalWidth-1:0] ordinal_t;

  typedef enum logic [2:0] {StPick, StRead, StAsk, StWait, StCheck, StCommit, StFail} state_e;
  state_e state_q, state_d;
  cip_pkg::input_id_t current_q, following;

  // What is known per input, in LUT RAM: the list of tables and the table being walked.
  logic [cip_pkg::AddrWidth-1:0] list_next[cip_pkg::InputSlots];
  logic [OrdinalWidth-1:0] list_left[cip_pkg::InputSlots];
  logic [OrdinalWidth-1:0] table_ordinal[cip_pkg::InputSlots];
  logic [cip_pkg::AddrWidth-1:0] table_base[cip_pkg::InputSlots];
  logic [cip_pkg::AddrWidth-1:0] table_bytes[cip_pkg::InputSlots];
  logic [cip_pkg::WordAddrWidth-1:0] block_next[cip_pkg::InputSlots];
  logic [cip_pkg::BlockLengthWidth-1:0] block_left[cip_pkg::InputSlots];
  logic [cip_pkg::BlockLengthWidth-1:0] block_ordinal[cip_pkg::InputSlots];

  // The same of the input at hand.
  cip_pkg::addr_t at_list_q, at_base_q, at_bytes_q;
  ordinal_t at_list_left_q, at_table_ordinal_q;
  cip_pkg::word_addr_t at_block_q;
  cip_pkg::block_length_t at_block_left_q, at_block_ordinal_q;

  // The descriptor at hand: the table's or the block's, in words of the reply.
  cip_pkg::word_t word0_q, word1_q, word2_q;
  cip_pkg::addr_t table_address, table_length, block_address;
  cip_pkg::block_length_t table_blocks, block_length;
  logic [1:0] word_count_q, settled_q;
  logic is_table_q, is_end_q, crc_good_q, fields_good_q, table_wraps_q;
  logic [cip_pkg::AddrWidth:0] table_end, block_end_q;
  assign {table_length, table_address} = word0_q;
  assign table_blocks                  = word1_q[55:32];
  assign block_address                 = word0_q[31:0];
  assign block_length                  = word0_q[55:32];

  // ---- Queues: two entries an input, side by side. Full and empty are told apart by `block_valid_o`.
  logic [cip_pkg::BlockRefWidth-1:0] queue[2*cip_pkg::InputSlots];
  cip_pkg::block_ref_t found;
  logic [NumInputs-1:0] valid_q, write_bit_q, read_bit_q, full_q, done_q;
  cip_pkg::input_mask_t write_bit, read_bit, blocked;
  logic push;

  assign write_bit = cip_pkg::InputSlots'(write_bit_q);
  assign read_bit  = cip_pkg::InputSlots'(read_bit_q);
  always_comb begin
    blocked = '1;
    for (int i = 0; i < NumInputs; i++) blocked[i] = full_q[i] | done_q[i];
  end
  assign push          = state_q == StCommit && (is_end_q || !is_table_q);
  assign found.is_end  = is_end_q;
  assign found.length  = block_length;
  assign found.addr    = at_base_q + block_address;
  assign block_valid_o = valid_q;
  assign block_o       = queue[{block_select_i, read_bit[block_select_i]}];
  always_ff @(posedge clk_i) if (push) queue[{current_q, write_bit[current_q]}] <= found;

  for (genvar i = 0; i < NumInputs; i++) begin : gen_queue
    logic pushed;
    assign pushed = push && current_q == cip_pkg::InputIdWidth'(i);
    always_ff @(posedge clk_i) begin
      if (rst_i) begin
        write_bit_q[i] <= 1'b0;
        read_bit_q[i]  <= 1'b0;
        valid_q[i]     <= 1'b0;
        full_q[i]      <= 1'b0;
        done_q[i]      <= 1'b0;
      end else begin
        if (pushed) write_bit_q[i] <= !write_bit_q[i];
        if (block_pop_i[i]) read_bit_q[i] <= !read_bit_q[i];
        if (pushed != block_pop_i[i]) begin
          valid_q[i] <= pushed || full_q[i];
          full_q[i]  <= pushed && valid_q[i];
        end
        if (pushed && is_end_q) done_q[i] <= 1'b1;
      end
    end
  end

  // ---- The inputs' state. A count written through the registers also forgets what the last job left behind.
  logic write_table, write_block, from_csr, csr_list, csr_count;
  cip_pkg::input_id_t write_at;
  assign from_csr    = !running_i && list_write_i.valid;
  assign csr_list    = from_csr && !list_write_i.is_count;
  assign csr_count   = from_csr && list_write_i.is_count;
  assign write_at    = from_csr ? list_write_i.id : current_q;
  assign write_table = state_q == StCommit && is_table_q && !is_end_q;
  assign write_block = state_q == StCommit && !is_end_q;
  always_ff @(posedge clk_i) begin
    if (write_table || csr_list)
      list_next[write_at] <= from_csr ? list_write_i.data : at_list_q + cip_pkg::AddrWidth'(TableDescBytes);
    if (write_table || csr_count) begin
      list_left[write_at]     <= from_csr ? list_write_i.data[OrdinalWidth-1:0] : at_list_left_q - 16'd1;
      table_ordinal[write_at] <= from_csr ? 16'd0 : at_table_ordinal_q + 16'd1;
    end
    if (write_table) begin
      table_base[write_at]  <= table_address;
      table_bytes[write_at] <= table_length;
    end
    if (write_block)
      block_next[write_at] <= is_table_q ? word1_q[31:3] : at_block_q + cip_pkg::WordAddrWidth'(BlockDescWords);
    if (write_block || csr_count) begin
      block_left[write_at]    <= from_csr ? 24'd0 : is_table_q ? table_blocks : at_block_left_q - 24'd1;
      block_ordinal[write_at] <= is_table_q ? 24'd0 : at_block_ordinal_q + 24'd1;
    end
  end

  always_ff @(posedge clk_i) begin
    at_list_q          <= list_next[current_q];
    at_list_left_q     <= list_left[current_q];
    at_table_ordinal_q <= table_ordinal[current_q];
    at_base_q          <= table_base[current_q];
    at_bytes_q         <= table_bytes[current_q];
    at_block_q         <= block_next[current_q];
    at_block_left_q    <= block_left[current_q];
    at_block_ordinal_q <= block_ordinal[current_q];
  end

  // ---- Two steps: the sums, then what is right about the fields.
  assign table_end = {1'b0, table_address} + {1'b0, table_length};
  always_ff @(posedge clk_i) begin
    table_wraps_q <= table_end[cip_pkg::AddrWidth];
    block_end_q   <= {1'b0, block_address} + {8'b0, block_bytes_o};
    fields_good_q <= is_table_q
        ? word2_q[63:40] == TableMark && word2_q[39:32] == {4'b0, current_q}
          && word2_q[31:0] == {16'b0, at_table_ordinal_q} && !table_wraps_q && word1_q[3:0] == '0
          && word1_q[63:56] == '0
        : word1_q[31:0] == {8'b0, at_block_ordinal_q} && word0_q[63:56] == '0 && block_length[23:3] != '0
          && block_end_q <= {1'b0, at_bytes_q};
  end

  // ---- What comes next. The context registers follow `current` by one cycle, hence Read.
  logic at_table, at_end;
  assign following = current_q == cip_pkg::InputIdWidth'(NumInputs - 1) ? 4'd0 : current_q + 4'd1;
  assign at_table  = at_block_left_q == '0;
  assign at_end    = at_table && at_list_left_q == '0;
  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StPick:   if (running_i && !blocked[current_q]) state_d = StRead;
      StRead:   state_d = at_end ? StCommit : StAsk;
      StAsk:    if (desc_req_ready_i) state_d = StWait;
      StWait:   if (desc_rsp_valid_i && desc_rsp_i.last) state_d = StCheck;
      StCheck:  if (settled_q == 2'd2) state_d = crc_good_q && fields_good_q ? StCommit : StFail;
      StCommit: state_d = StPick;
      default:  state_d = StFail;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      state_q   <= StPick;
      current_q <= '0;
      settled_q <= '0;
    end else begin
      state_q   <= state_d;
      settled_q <= state_q == StCheck ? settled_q + 2'd1 : 2'd0;
      if (state_q == StCommit || (state_q == StPick && running_i && blocked[current_q])) current_q <= following;
    end
    if (state_q == StRead) begin
      is_table_q   <= at_table;
      is_end_q     <= at_end;
      word_count_q <= '0;
    end
    if (state_q == StWait && desc_rsp_valid_i) begin
      if (word_count_q == 2'd0) word0_q <= desc_rsp_i.data;
      if (word_count_q == 2'd1) word1_q <= desc_rsp_i.data;
      if (word_count_q == 2'd2) word2_q <= desc_rsp_i.data;
      word_count_q <= word_count_q + 2'd1;
      crc_good_q   <= desc_rsp_i.crc_good;
    end
  end

  // Table descriptors are 32-byte aligned, block descriptors 16-byte aligned: none crosses a burst's border.
  assign desc_req_valid_o     = state_q == StAsk;
  assign desc_req_o.is_table  = is_table_q;
  assign desc_req_o.word_addr = is_table_q ? {at_list_q[31:5], 2'b0} : {at_block_q[28:1], 1'b0};
  assign block_found_o        = write_block && !is_table_q;
  assign block_bytes_o        = {1'b0, block_length} + cip_pkg::TypeAndCrcBytes;
  assign error_valid_o        = state_q == StFail;
  assign error_o.code         = crc_good_q ? cip_pkg::ErrDescriptorField : cip_pkg::ErrDescriptorCrc;
  assign error_o.id           = current_q;
endmodule
